"""
Where the API server is, and as whom: a kubeconfig as kubectl finds it, or the service account of a pod.

The client of the package ``kubernetes`` gets what was found out here. It reads no kubeconfig, no ``~/.netrc`` and no
variable of the environment by itself.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubernetes.aio.client import ApiClient, Configuration
from multidict import CIMultiDict

from svc.errors import printable
from svc.kube.credentials import Credentials, PluginCredentials, TokenFile
from svc.kube.errors import KubernetesError
from svc.kube.kubeconfig import Access, read_access
from svc.kube.proxies import proxy_for

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Way:
    """
    The way to an API server.

    Args:
        api: the client of the package.
        credentials: asked before each request.
        context: of the kubeconfig; empty where it is that of the pod.
    """

    api: ApiClient
    credentials: Credentials
    context: str = ""


async def configured(
    kubeconfig: str = "",
    context: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Way:
    """
    Find the way to a cluster; nothing is asked yet.

    Args:
        kubeconfig: a file; where empty, those of ``KUBECONFIG``, ``~/.kube/config`` or the service account of the pod.
        context: one of the kubeconfig; its current one where empty.
        environment: of credential plugins too, and with the variables of proxies.
        service_account: the folder of its token.

    Raises:
        KubernetesError: ``kubeconfig_unusable``.
    """
    named = kubeconfig or environment.get("KUBECONFIG") or os.path.join(environment.get("HOME", "/"), ".kube/config")
    paths = [kubeconfig] if kubeconfig else [each for each in named.split(os.pathsep) if each]
    there = any(map(os.path.exists, paths))
    access = read_access(paths, context) if there or not kubeconfig else None
    if access is None and not kubeconfig and "KUBERNETES_SERVICE_HOST" in environment:
        access = _service_account(environment, service_account)
    if access is None:
        detail = f"{printable(named)} names no cluster" if there else f"there is no file {printable(named)}"
        raise KubernetesError("kubeconfig_unusable", detail=detail)
    try:
        return _way(access, environment)
    except (OSError, ValueError) as error:
        where = named if access.context else str(service_account)
        raise KubernetesError("kubeconfig_unusable", detail=f"{printable(where)}: {printable(error)}") from error


def _service_account(environment: Mapping[str, str], folder: Path) -> Access | None:
    """That of the pod; None outside of one."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not (folder / "token").exists():
        return None
    try:
        authorities = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise KubernetesError("kubeconfig_unusable", detail=printable(error)) from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    # The kubelet replaces the file before the token in it ends.
    return Access(context="", server=server, authorities=authorities, token_file=str(folder / "token"))


def _way(access: Access, environment: Mapping[str, str]) -> Way:
    configuration = Configuration(host=access.server, verify_ssl=access.verified)
    # Go does not look for what RFC 5280 demands of extensions, and CAs of clusters do without.
    configuration.disable_strict_ssl_verification = True
    configuration.ca_cert_data = access.authorities.decode("ascii") or None
    configuration.tls_server_name = access.server_name or None
    configuration.proxy = _proxy(access, environment) or None
    headers: CIMultiDict[str] = CIMultiDict(access.impersonated)
    configuration.client_session_kwargs = {"trust_env": False, "headers": headers}
    api = ApiClient(configuration)
    if access.certificate:
        _load(api, access.certificate, access.key)

    async def use_certificate(certificate: bytes, key: bytes) -> None:
        if access.certificate:
            return
        _load(api, certificate, key)
        # Open connections are those of the certificate before.
        former, api.rest_client.pool_manager = api.rest_client.pool_manager, None
        if former is not None:
            await former.close()

    if access.token_file:
        return Way(api, TokenFile(access.token_file, access.token), access.context)
    if access.plugin and not (access.token or access.login):
        return Way(api, PluginCredentials(access, access.plugin, environment, use_certificate), access.context)
    return Way(api, Credentials(_authorization(access)), access.context)


def _authorization(access: Access) -> str:
    if access.login:
        return f"Basic {base64.b64encode(':'.join(access.login).encode()).decode()}"
    return f"Bearer {access.token}" if access.token else ""


def _proxy(access: Access, environment: Mapping[str, str]) -> str:
    proxy = access.proxy or proxy_for(access.server, environment)
    if proxy and (urlsplit(proxy).scheme not in ("http", "https") or not urlsplit(proxy).hostname):
        # It may have a password.
        shown = f"{urlsplit(proxy).scheme}://{urlsplit(proxy).hostname}"
        raise ValueError(f"the proxy {shown} to {access.server} is no URL with http or https and a host")
    return proxy


def _load(api: ApiClient, certificate: bytes, key: bytes) -> None:
    with _in_memory(certificate) as certificate_path, _in_memory(key) as key_path:
        # Without a password OpenSSL would ask on the terminal for that of an encrypted key.
        api.rest_client.ssl_context.load_cert_chain(certificate_path, key_path, password="")


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file that is in memory alone; OpenSSL takes certificates from files."""
    with open(os.memfd_create("certificate"), "w+b") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
