"""
The checks behind ``--check-config``: whether the process can open what its configuration names.

They block, run as the calling user, and change nothing: no file or folder is made, and a port is bound for a moment
without accepting connections. Each daemon lists what it opens.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TextIO

from svc.errors import SvcError
from svc.folders import probe_folder
from svc.pages.listening import ListenFailed
from svc.process.settings import DaemonSettings
from svc.settings import HostPort
from svc.transport.addresses import UnixAddress, parse_address

#: Seconds within which a socket has to accept a connection.
CONNECT_SECONDS: Final = 2.0


class CheckFailed(SvcError):
    """{what} cannot be used: {why}"""

    reason = "check_failed"
    hint = "make its folder writable for the user of this service, and run this check as that user; or change {key}"


class SocketServed(CheckFailed):
    """{what} cannot be used: another process serves it"""

    hint = "stop it where it is this service, and run the check again; else change {key}"


class ServiceUnreachable(CheckFailed):
    """{what} cannot be reached: {why}"""

    hint = "start the process that serves it, and run this check as the user of this service; or change {key}"


class ServiceDenied(ServiceUnreachable):
    """{what} cannot be reached: the file system does not let this user connect"""

    hint = "add the user of this service to the group of the socket (socketGroup of svc-authority); or change {key}"


@dataclass(frozen=True, slots=True)
class Check:
    """
    One thing that is opened at the start.

    ``what`` is shown to people, with its address or path; ``test`` raises :class:`SvcError` where it cannot be opened.
    """

    what: str
    test: Callable[[], object]


def check_port(what: str, key: str, address: HostPort) -> Check:
    """Check that a TCP port can be bound; ``key`` names it in the configuration."""

    def test() -> None:
        try:
            _bind(address)
        except OSError as error:
            raise ListenFailed.from_error(error, what=what, address=address, key=key) from error

    return Check(f"{what} at {address}", test)


def check_pages(settings: DaemonSettings) -> Iterator[Check]:
    """Check the ports of metrics, of operators' pages and of probes, as far as they are configured."""
    for key in ("metricsAddr", "adminAddr", "probesAddr"):
        address: HostPort | None = getattr(settings, key, None)
        if address is not None:
            yield check_port(key, settings.key_text(key), address)


def check_service(what: str, key: str, address: str) -> Check:
    """Check that ``unix:///path`` or ``host:port`` accepts a connection."""
    named = f"{what} at {address}"

    def test() -> None:
        parsed = parse_address(address)
        try:
            if isinstance(parsed, UnixAddress):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                    client.settimeout(CONNECT_SECONDS)
                    client.connect(parsed.path)
            else:
                socket.create_connection((parsed.host, parsed.port), CONNECT_SECONDS).close()
        except PermissionError as error:
            raise ServiceDenied(what=named, key=key) from error
        except OSError as error:
            raise ServiceUnreachable(what=named, why=error.strerror or str(error), key=key) from error

    return Check(named, test)


def check_written_file(what: str, key: str, path: str) -> Check:
    """Check that a file can be replaced in its folder, which must exist."""
    named = f"{what} {path}"

    def test() -> None:
        try:
            probe_folder(os.path.dirname(os.path.abspath(path)))
        except OSError as error:
            raise CheckFailed(what=named, why=error.strerror or str(error), key=key) from error

    return Check(named, test)


def check_new_socket(what: str, key: str, path: str) -> Check:
    """Check that a Unix socket can be made: no process serves it, and its folder is writable."""
    named = f"{what} at unix://{path}"

    def test() -> None:
        try:
            check_service(what, key, f"unix://{path}").test()
        except ServiceUnreachable:
            check_written_file(f"{what} at", key, path).test()
        else:
            raise SocketServed(what=named, key=key)

    return Check(named, test)


def run_checks(checks: Iterable[Check], out: TextIO, errors: TextIO) -> bool:
    """
    Run all checks and return whether all pass.

    ``out`` gets a line ``ok`` or ``no`` for each; ``errors`` gets the sentence and the hint of each failure.
    """
    good = True
    for check in checks:
        try:
            check.test()
        except SvcError as error:
            good = False
            print(f"no  {check.what}", file=out)
            print(f"svc: {error}", file=errors)
            if error.hint:
                print(f"     {error.hint}", file=errors)
        else:
            print(f"ok  {check.what}", file=out)
    return good


def _bind(address: HostPort) -> None:
    """As :func:`svc.transport.tcp.listen_tcp`, without a reactor."""
    if address.host or not socket.has_dualstack_ipv6():
        _bind_one(socket.AF_INET6 if ":" in address.host else socket.AF_INET, address.host, address.port)
    else:
        _bind_one(socket.AF_INET6, "::", address.port)


def _bind_one(family: int, host: str, number: int) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind((host, number))
