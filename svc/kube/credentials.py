"""What authenticates a request: a token that does not change, one in a file, or what a credential plugin says."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn

from svc.errors import printable
from svc.kube.errors import KubernetesError
from svc.kube.kubeconfig import Access, Plugin
from svc.kube.times import from_time


class Credentials:
    """Those that do not change; empty for none, or for those of the connection alone."""

    def __init__(self, authorization: str = "") -> None:
        self._authorization = authorization

    async def authorization(self) -> str:
        """
        Return the value of the header ``Authorization``, empty for none; called before each request.

        Raises:
            KubernetesError: there is none now, and the request must not be sent without.
        """
        return self._authorization

    def refused(self) -> None:
        """The server does not accept them any more."""


class TokenFile(Credentials):
    """
    A token in a file, which may be replaced at any time.

    Args:
        otherwise: the token while the file cannot be read; empty for none.
    """

    def __init__(self, path: str, otherwise: str = "") -> None:
        super().__init__()
        self._path = path
        self._otherwise = otherwise

    async def authorization(self) -> str:
        """Read the file."""
        try:
            with open(self._path, encoding="ascii") as file:
                token = file.read().strip()
            if not token or not token.isprintable():
                raise ValueError(f"there is no token in {self._path}")
        except (OSError, ValueError) as error:
            if not self._otherwise:
                raise KubernetesError("kubeconfig_unusable", detail=printable(error)) from error
            token = self._otherwise
        return f"Bearer {token}"


class PluginCredentials(Credentials):
    """
    Those of a credential plugin (``client.authentication.k8s.io``), which runs again when they end or are refused.

    Its standard error is that of this process: it may say there what its user has to do.

    Args:
        access: has the plugin, and the cluster that it may be told.
        environment: of the plugin, to which its own variables are added.
        use_certificate: gets the certificate and key that the plugin gives, in PEM; may raise OSError.
        terminal: whether a person can answer the plugin on standard input.
    """

    def __init__(
        self,
        access: Access,
        plugin: Plugin,
        environment: Mapping[str, str],
        use_certificate: Callable[[bytes, bytes], Awaitable[None]],
        *,
        terminal: Callable[[], bool] = lambda: os.isatty(0),
    ) -> None:
        super().__init__()
        self._access = access
        self._plugin = plugin
        self._environment = environment
        self._use_certificate = use_certificate
        self._terminal = terminal
        self._lock = asyncio.Lock()
        self._ends: float | None = 0.0

    async def authorization(self) -> str:
        """Run the plugin where that is needed; however long it takes, since it may wait for a person."""
        async with self._lock:
            if self._ends is not None and time.time() >= self._ends:
                await self._renew()
        return self._authorization

    def refused(self) -> None:
        """Have the plugin run before the next request."""
        self._ends = 0.0

    async def _renew(self) -> None:
        output = await self._run()
        try:
            credential = json.loads(output)
            version, kind = credential["apiVersion"], credential["kind"]
            status = credential.get("status") or {}
            token = status.get("token") or ""
            certificate = (status.get("clientCertificateData") or "").encode()
            key = (status.get("clientKeyData") or "").encode()
            ends = status.get("expirationTimestamp")
            until = from_time(ends) if ends else None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._failure("has written no ExecCredential on its standard output") from error
        if (version, kind) != (self._plugin.version, "ExecCredential"):
            self._fail(f"has written {printable(version)} {printable(kind)}, and not {self._plugin.version}")
        if not isinstance(token, str) or not token.isprintable() or (ends and until is None):
            self._fail("has written a token or an expirationTimestamp that is none")
        if bool(certificate) != bool(key) or not (token or certificate):
            self._fail("has given neither a token nor a certificate with its key")
        if certificate:
            try:
                await self._use_certificate(certificate, key)
            except OSError as error:
                raise self._failure("has given a certificate or key that is none") from error
        self._authorization = f"Bearer {token}" if token else ""
        self._ends = until.timestamp() if until else None

    async def _run(self) -> bytes:
        plugin = self._plugin
        interactive = plugin.mode != "Never" and self._terminal()
        if plugin.mode == "Always" and not interactive:
            self._fail("has to ask on a terminal, and standard input is none")
        environment = {
            **self._environment,
            **plugin.environment,
            "KUBERNETES_EXEC_INFO": self._information(interactive),
        }
        command = plugin.command
        if os.sep not in command:
            command = shutil.which(command, path=self._environment.get("PATH", "")) or ""
        if not os.path.isabs(command):
            self._fail("is not found in PATH" if not command else "is in a folder of PATH that is not absolute")
        try:
            process = await asyncio.create_subprocess_exec(
                *(command, *plugin.arguments), stdin=None if interactive else DEVNULL, stdout=PIPE, env=environment
            )
        except (OSError, ValueError) as error:
            raise self._failure(
                f"cannot be started: {(getattr(error, 'strerror', '') or str(error)).lower()}"
            ) from error
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            ended = process.returncode
            self._fail(f"ended with status {ended}" if ended > 0 else f"was ended by signal {-ended}")
        return output

    def _information(self, interactive: bool) -> str:
        """The value of KUBERNETES_EXEC_INFO."""
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.wants_cluster:
            spec["cluster"] = _cluster_information(self._access)
        return json.dumps({"apiVersion": self._plugin.version, "kind": "ExecCredential", "spec": spec})

    def _failure(self, failure: str) -> KubernetesError:
        hint = printable(self._plugin.hint) or "kubectl get --raw /version runs it as well"
        command = printable(self._plugin.command)
        return KubernetesError("credential_plugin_failed", command=command, failure=failure, advice=hint)

    def _fail(self, failure: str) -> NoReturn:
        raise self._failure(failure)


def _cluster_information(access: Access) -> dict[str, Any]:
    """``spec.cluster`` of an ExecCredential; what is empty is left out."""
    everything: Final = {
        "server": access.server,
        "tls-server-name": access.server_name,
        "insecure-skip-tls-verify": not access.verified,
        "certificate-authority-data": base64.b64encode(access.authorities).decode(),
        "proxy-url": access.proxy,
        "config": access.plugin_config,
    }
    return {name: value for name, value in everything.items() if value}
