"""
The credentials of this machine for a registry: files of container tools, and the helpers that they name.

Owns the order of the sources, and the processes of helpers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from svc.errors import printable
from svc.install.registry.credentials import Credentials, Helper, configured_credentials, helped_credentials
from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Host

HELPER_SECONDS: Final = 10.0
_MAX_OUTPUT: Final = 64 * 1024
#: What helpers write, to either stream, where they have nothing: not a failure.
_NOTHING: Final = b"credentials not found"


def credential_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files that may have credentials, in their order."""
    found = [Path(environment["REGISTRY_AUTH_FILE"])] if environment.get("REGISTRY_AUTH_FILE") else []
    home = environment.get("HOME", "")
    if environment.get("DOCKER_CONFIG"):
        found.append(Path(environment["DOCKER_CONFIG"], "config.json"))
    elif home:
        found.append(Path(home, ".docker", "config.json"))
    if environment.get("XDG_RUNTIME_DIR"):
        found.append(Path(environment["XDG_RUNTIME_DIR"], "containers", "auth.json"))
    if home:
        found.append(Path(home, ".config", "containers", "auth.json"))
    return found


async def find_credentials(
    reactor: Any,
    host: Host,
    repository: str,
    environment: Mapping[str, str],
    *,
    helper_seconds: float = HELPER_SECONDS,
) -> Credentials | None:
    """
    Find the credentials of this machine for a repository.

    The first file that has any, or names a helper that has, decides: ``$REGISTRY_AUTH_FILE``,
    ``$DOCKER_CONFIG/config.json`` (by default in ``~/.docker``), ``$XDG_RUNTIME_DIR/containers/auth.json``,
    ``~/.config/containers/auth.json``.

    Args:
        reactor: the reactor.
        host: of the registry.
        repository: its name, or the prefix of names.
        environment: the variables, also those of a helper.
        helper_seconds: how long a helper may take.

    Returns:
        None where there are none: the registry is asked without.

    Raises:
        RegistryError: a file cannot be read, or a helper failed.
    """
    for path in credential_files(environment):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            defect = os.strerror(error.errno or 0)
            raise RegistryError("registry_credentials_unreadable", registry=host, path=path, defect=defect) from error
        found = configured_credentials(data, str(path), host, repository)
        if isinstance(found, Helper):
            found = await _ask(reactor, host, found, environment, helper_seconds)
        if found is not None:
            return found
    return None


async def _ask(
    reactor: Any, host: Host, helper: Helper, environment: Mapping[str, str], seconds: float
) -> Credentials | None:
    def failed(defect: str) -> RegistryError:
        return RegistryError("credential_helper_failed", registry=host, helper=helper.program, defect=defect)

    program = shutil.which(helper.program, path=environment.get("PATH", os.defpath))
    if program is None:
        raise failed("there is no such program in PATH")
    process = _HelperProcess(f"{helper.server}\n".encode())
    reactor.spawnProcess(process, program, [helper.program, "get"], env=dict(environment))
    late = reactor.callLater(seconds, process.stop, f"it did not end within {seconds:g} s")
    try:
        defect = await process.ended
    finally:
        if late.active():
            late.cancel()
    output = bytes(process.output)
    if not defect:
        found = helped_credentials(output, helper)
        if found is None:
            raise failed("its output is not a JSON object with Username and Secret")
        return found
    said = output + bytes(process.errors)
    if _NOTHING in said.lower():
        return None
    # Whatever looks like an answer may be a secret.
    line = "" if b"{" in said else said.strip().decode("utf-8", "replace").partition("\n")[0]
    raise failed(f"{defect}: {printable(line, 200)}" if line else defect)


class _HelperProcess(ProcessProtocol):
    """A helper; ``ended`` fires with what is wrong, empty for nothing."""

    transport: Any

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.output, self.errors = bytearray(), bytearray()
        self.ended: Deferred[str] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(self._data)
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        self.output += data
        if len(self.output) > _MAX_OUTPUT:
            self.stop(f"it wrote more than {_MAX_OUTPUT} octets")

    def errReceived(self, data: bytes) -> None:
        self.errors += data[: _MAX_OUTPUT - len(self.errors)]

    def processEnded(self, reason: Failure) -> None:
        if not self.ended.called:
            self.ended.callback("" if isinstance(reason.value, ProcessDone) else _ending(reason.value))

    def stop(self, defect: str) -> None:
        """End it, for a reason."""
        if not self.ended.called:
            self.transport.signalProcess("KILL")
            # What it started may still hold its output.
            self.transport.loseConnection()
            self.output.clear()
            self.ended.callback(defect)


def _ending(error: Any) -> str:
    if error.signal is not None:
        return f"the signal {error.signal} ended it"
    return f"it ended with the status {error.exitCode}"
