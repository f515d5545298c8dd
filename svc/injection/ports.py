"""
The annotation ``svc.internal/ports``: on which ports the proxy of a pod listens, and what for::

    ports = port *( *SP "," *SP port )
    port  = LISTEN ":" APPLICATION "/" ( "http" / "tcp" / "mqtt" )

The two are decimal numbers without leading zeros. There is one way to write a port, and no default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc.injection.errors import InjectionRefused
from svc.naming import ANNOTATION_PORTS

MAX_PORTS: Final = 16
#: The proxy has no capability for ports below it.
LOWEST_LISTEN: Final = 1024
PROTOCOLS: Final = ("http", "tcp", "mqtt")
_PORT: Final = re.compile(r"([1-9][0-9]{0,4}):([1-9][0-9]{0,4})/([a-z]{1,8})\Z")


@dataclass(frozen=True, slots=True)
class InjectedPort:
    """A port of the proxy, and that of the application on 127.0.0.1."""

    listen: int
    application: int
    protocol: str

    @property
    def name(self) -> str:
        """The name of the listener, which policies use, and of the port of the container."""
        return f"{self.protocol}-{self.listen}"


def parse_ports(text: str) -> tuple[InjectedPort, ...]:
    """
    Parse the annotation.

    Raises:
        InjectionRefused: ``injection_annotation``.
    """
    entries = text.split(",", MAX_PORTS)
    if len(entries) > MAX_PORTS:
        raise _refused(text, f"more than {MAX_PORTS} ports")
    ports = tuple(_parse_port(entry.strip(" "), text) for entry in entries)
    listens = [port.listen for port in ports]
    for port in ports:
        if listens.count(port.listen) > 1:
            raise _refused(text, f"the proxy cannot listen on {port.listen} twice")
        if port.application in listens:
            raise _refused(text, f"proxy and application cannot both have {port.application}")
    return ports


def _parse_port(entry: str, text: str) -> InjectedPort:
    match = _PORT.match(entry)
    if match is None:
        raise _refused(text, f"{entry!r} is not LISTEN:APPLICATION/PROTOCOL, such as 8443:8080/http")
    port = InjectedPort(int(match[1]), int(match[2]), match[3])
    if port.protocol not in PROTOCOLS:
        raise _refused(text, f"the protocol {port.protocol} is not http, tcp or mqtt")
    if not LOWEST_LISTEN <= port.listen <= 65535:
        raise _refused(text, f"the proxy listens on ports from {LOWEST_LISTEN} to 65535, not on {port.listen}")
    if port.application > 65535:
        raise _refused(text, f"{port.application} is above 65535")
    return port


def _refused(text: str, defect: str) -> InjectionRefused:
    return InjectionRefused("injection_annotation", annotation=ANNOTATION_PORTS, value=text, defect=defect)
