"""Which processes are asked: addresses of arguments and of configuration files."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from svc import naming
from svc.cli.errors import StatusUnavailable, UsageRefused

_LOOPBACK: Final = "127.0.0.1"
#: Addresses to listen on that stand for every address of a host, and where they are reached.
_EVERYWHERE: Final = {"": _LOOPBACK, "0.0.0.0": _LOOPBACK, "::": "::1"}  # noqa: S104 (nothing listens here)
_DISABLED: Final = ("", "0", 0)


class AdminAddress(NamedTuple):
    """Where a process answers operators."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


#: Those of a proxy, a broker and an authority whose configuration names none.
DEFAULTS: Final = tuple(
    AdminAddress(_LOOPBACK, port)
    for port in (naming.PORT_PROXY_ADMIN, naming.PORT_BROKER_ADMIN, naming.PORT_AUTHORITY_ADMIN)
)


def read_addresses(words: tuple[str, ...], files: tuple[str, ...], instead: str = "") -> tuple[AdminAddress, ...]:
    """
    The addresses that arguments and configuration files name, each once; :data:`DEFAULTS` where there are neither.

    Args:
        instead: a flag that somebody may have meant who names a number alone.

    Raises:
        UsageRefused: an argument is no address.
        StatusUnavailable: a file names none.
        SvcError: a file cannot be read.
    """
    if not words and not files:
        return DEFAULTS
    return tuple(dict.fromkeys([*(_argument(each, instead) for each in words), *map(_configured, files)]))


def _argument(text: str, instead: str) -> AdminAddress:
    if text.isascii() and text.isdigit():
        other = f", or {instead}={text}" if instead else ""
        raise UsageRefused(f'"{text}" is no address', f"did you mean 127.0.0.1:{text}{other}?")
    try:
        return _address(text)
    except ValueError as error:
        raise UsageRefused(f'"{text}" is no address', f"expected: {error}, such as 127.0.0.1:9902") from error


def _configured(path: str) -> AdminAddress:
    from pydantic import BaseModel

    from svc.settings import ConfigInvalid, ConfigProblem, load

    class Configuration(BaseModel):
        """The one key that all processes have; the others are theirs to check."""

        adminAddr: Any = None

    value = load(path, Configuration).adminAddr
    if value is None or (value in _DISABLED and not isinstance(value, bool)):
        raise StatusUnavailable("admin_address_missing", path=path, value="not set" if value is None else "disabled")
    try:
        return _address(value)
    except ValueError as error:
        raise ConfigInvalid(path, (ConfigProblem("adminAddr", str(value), str(error)),)) from error


def _address(value: object) -> AdminAddress:
    # Imported here: it takes more time than all the rest of the command.
    from svc.settings import HostPort

    parsed = HostPort.parse(value)
    if not parsed.port:
        raise ValueError("an address host:port with a port from 1 on")
    return AdminAddress(_EVERYWHERE.get(parsed.host, parsed.host), parsed.port)
