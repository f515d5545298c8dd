"""What an API server and a whole cluster share: their programs, certificates and kubeconfigs."""

from __future__ import annotations

import base64
import functools
import ipaddress
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: The checkout.
TOP: Final = Path(__file__).resolve().parents[1]
#: The tools of ``bin/tools`` with their programs.
TOOLS: Final = {
    "kubernetes": (
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kubelet",
        "kubectl",
    ),
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr", "pause"),
    "coredns": ("coredns",),
    "helm": ("helm",),
}
#: The custom resources of the product.
CRDS: Final = TOP / "svc" / "data" / "crds"
_VALID: Final = timedelta(days=365)


class ToolMissing(Exception):
    """A tool of ``bin/tools`` has not been built; carries its name."""

    def __init__(self, tool: str) -> None:
        super().__init__(f"{tool} is missing: bin/tools {tool} builds it, with Go 1.26 or newer")
        self.tool = tool


@functools.cache
def folder_of(tool: str) -> Path:
    """
    Find a tool.

    Returns:
        The folder with its programs.

    Raises:
        ToolMissing: it has not been built.
    """
    asked = [str(TOP / "bin" / "tools"), "--check", tool]
    folder = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
    if folder == Path() or not all(os.access(folder / name, os.X_OK) for name in TOOLS[tool]):
        raise ToolMissing(tool)
    return folder


def apply_crds(kubectl: Callable[..., str]) -> None:
    """
    Make or change the custom resources of the product, and wait until they are served.

    Args:
        kubectl: runs it with these arguments.
    """
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))


class CertificateAuthority:
    """
    The CA of a cluster, its certificates and the key for service account tokens, as PEM files in a folder.

    Args:
        folder: where they go; made here.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes-ca")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._name, self._key.public_key()).add_extension(constraints, critical=True)
        self._write("ca.crt", builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self._write("ca.key", _pem(self._key))
        self._write("accounts.key", _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))

    def issue(self, name: str, common_name: str, *, groups: Sequence[str] = (), sans: Sequence[str] = ()) -> None:
        """
        Write ``NAME.crt`` and ``NAME.key``.

        Args:
            name: of the files.
            common_name: the user, for the API server.
            groups: of the user.
            sans: host names and IP addresses of a server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = self._builder(subject, key.public_key()).add_extension(usages, critical=False)
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName([_san(each) for each in sans]), critical=False)
        self._write(f"{name}.crt", builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self._write(f"{name}.key", _pem(key))

    def kubeconfig(self, path: Path, server: str, name: str) -> Path:
        """
        Write a kubeconfig that needs no other file.

        Args:
            path: where.
            server: the URL of the API server.
            name: of an issued certificate; its user.

        Returns:
            The path.
        """
        cluster = {"server": server, "certificate-authority-data": self._encoded("ca.crt")}
        user = {
            "client-certificate-data": self._encoded(f"{name}.crt"),
            "client-key-data": self._encoded(f"{name}.key"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "svc", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "svc", "context": {"cluster": "svc", "user": name}}],
            "current-context": "svc",
        }
        path.touch(mode=0o600)
        # YAML as well.
        path.write_text(json.dumps(config, indent=2) + "\n")
        return path

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        serial = x509.random_serial_number()
        before, after = now - timedelta(minutes=5), now + _VALID
        return x509.CertificateBuilder(self._name, subject, public_key, serial, before, after)

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()

    def _write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(data)


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
