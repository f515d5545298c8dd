"""What the tests of the client of registries share: certificates, clients, content."""

from __future__ import annotations

import json
import random
from collections.abc import Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from svc.install.registry.blobs import LocalBlob
from svc.install.registry.client import MANIFEST, RegistryClient
from svc.install.registry.connections import read_roots
from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Host
from svc.pacing.backoff import Backoff
from svc.testing.certificates import CertificateTemplate, build_certificate, generate_key, name_of
from tests.peers.folders import short_folder
from tests.peers.registry import sha256

CONFIG = b'{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[]}}'


class Authority:
    """
    An authority and the certificate of a server at an address and ``registry.test``.

    Attributes:
        file: its own certificate.
        server: the files of the server's certificate and key.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        now = datetime.now(UTC)
        times: Any = {"not_before": now - timedelta(hours=1), "not_after": now + timedelta(days=1)}
        key, own = generate_key("ECDSA-P256"), generate_key("ECDSA-P256")
        usage = frozenset({"key_cert_sign"})
        root = build_certificate(
            CertificateTemplate(**times, subject="root", ca=True, key_usage=usage, eku=None),
            own.public_key(),
            name_of("root"),
            own,
        )
        names = (x509.IPAddress(ip_address(address)), x509.DNSName("registry.test"), x509.DNSName("localhost"))
        leaf = build_certificate(
            CertificateTemplate(**times, subject="registry", names=names), key.public_key(), name_of("root"), own
        )
        self.file, self.server = folder / "ca.pem", (folder / "server.pem", folder / "server.key")
        self.file.write_bytes(root.public_bytes(Encoding.PEM))
        self.server[0].write_bytes(leaf.public_bytes(Encoding.PEM))
        self.server[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


class RegistryCase(TestCase):
    """A folder for each test, and clients that are closed at its end."""

    timeout = 120

    def setUp(self) -> None:
        """Make the folder."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack)

    def client(self, port: int, host: str = "127.0.0.1", *, ca: Path | None = None, **settings: Any) -> RegistryClient:
        """Make a client that does not wait long between attempts."""
        address = Host(host, port)
        given: dict[str, Any] = {
            "plain": ca is None,
            "roots": () if ca is None else read_roots(ca, address),
            "pace": Backoff(0.02, 0.02),
            "random": lambda: 0.0,
            "now": lambda: datetime.now(UTC),
            **settings,
        }
        client = RegistryClient(reactor, address, **given)
        self.addCleanup(client.close)
        return client

    async def refused(self, reason: str, working: Coroutine[Any, Any, Any]) -> RegistryError:
        """Expect an error with a reason."""
        error: RegistryError = await self.assertFailure(Deferred.fromCoroutine(working), RegistryError)
        self.assertEqual(reason, error.reason, str(error))
        return error

    def blob(self, data: bytes, before: bytes = b"") -> LocalBlob:
        """Write content into a file, behind other octets."""
        path = self.folder / sha256(data)[7:19]
        path.write_bytes(before + data)
        return LocalBlob(path, sha256(data), len(data), len(before))


def octets(size: int, seed: int = 1) -> bytes:
    """Make content that does not repeat."""
    return random.Random(seed).randbytes(size)


def manifest(*layers: LocalBlob, **more: Any) -> bytes:
    """Write the manifest of an image with these layers and :data:`CONFIG`."""
    tar = "application/vnd.oci.image.layer.v1.tar"
    config = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": sha256(CONFIG),
        "size": len(CONFIG),
    }
    entries = [{"mediaType": tar, "digest": each.digest, "size": each.size} for each in layers]
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": entries, **more}
    return json.dumps(document).encode()
