"""Where the API server is, and as whom: a kubeconfig as kubectl finds it, or the service account of a pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, kube_config
from yaml import YAMLError

from svc.errors import printable
from svc.kube.errors import KubernetesError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: What a file that is no kubeconfig, or is of another user, leads to in the library.
_UNUSABLE: Final = (ConfigException, YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError)


async def configured(
    kubeconfig: str = "",
    context: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ApiClient:
    """
    Make the library's client of a cluster.

    Args:
        kubeconfig: a file; where empty, those of ``KUBECONFIG``, ``~/.kube/config`` or the service account of the pod.
        context: one of the kubeconfig; its current one where empty.
        service_account: the folder of its token.

    Raises:
        KubernetesError: ``kubeconfig_unusable``.
    """
    paths = kubeconfig or environment.get("KUBECONFIG") or os.path.join(environment.get("HOME", "/"), ".kube/config")
    in_pod = "KUBERNETES_SERVICE_HOST" in environment and (service_account / "token").exists()
    found = any(os.path.exists(os.path.expanduser(path)) for path in paths.split(os.pathsep) if path)
    if not found and (kubeconfig or not in_pod):
        raise KubernetesError("kubeconfig_unusable", detail=f"there is no file {paths}")
    configuration = Configuration()
    try:
        if not found:
            _use_service_account(configuration, environment, service_account)
            return ApiClient(configuration)
        # Its way to store renewed tokens does not work: it stores once, before there is one.
        await kube_config.load_kube_config(paths, context or None, configuration, persist_config=False)
        return ApiClient(configuration)
    except _UNUSABLE as error:
        where = paths if found else str(service_account)
        raise KubernetesError("kubeconfig_unusable", detail=f"{where}: {printable(error)}") from error
    finally:
        # The certificate and key of a kubeconfig were written to files for OpenSSL, which has read them.
        kube_config._cleanup_temp_files()


def _use_service_account(configuration: Any, environment: Mapping[str, str], folder: Path) -> None:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    configuration.ssl_ca_cert = str(folder / "ca.crt")

    def renew(current: Any) -> None:
        """Called before each request: the kubelet replaces the file before the token in it ends."""
        try:
            token = (folder / "token").read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise KubernetesError("kubeconfig_unusable", detail=printable(error)) from error
        current.api_key["BearerToken"] = f"Bearer {token}"

    renew(configuration)
    configuration.refresh_api_key_hook = renew
