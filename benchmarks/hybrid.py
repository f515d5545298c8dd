"""
What the post-quantum key agreement costs the server: connections with X25519MLKEM768 against connections with X25519.

Debian's OpenSSL 3.0, with which haproxy and the load generator are built, has no ML-KEM. So these clients run on the
OpenSSL that our own transport brings, one connection at a time, and measure our proxy alone.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from OpenSSL import SSL

from benchmarks.configurations import SMALL
from benchmarks.peers import Device
from svc.transport.binding import lib

GROUPS: Final = ("X25519MLKEM768", "X25519")
_REQUEST: Final = f"GET {SMALL} HTTP/1.1\r\nHost: service.example\r\nConnection: close\r\n\r\n".encode()
#: CPUCLOCK_SCHED of a whole process, in the clock numbers of clock_getcpuclockid(3).
_PROCESS_CLOCK: Final = 2


def cpu_seconds(pid: int) -> float:
    """
    Read the CPU time of a process, ended threads included.

    Args:
        pid: the process.

    Returns:
        Seconds.
    """
    return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)


def connections(device: Device, credentials: Path, group: str, seconds: float) -> float:
    """
    Connect, ask and close, again and again.

    Args:
        device: what to connect to.
        credentials: the folder of the client's credentials.
        group: the only group that is offered.
        seconds: for how long.

    Returns:
        The server's CPU microseconds for each connection.
    """
    context = _context(credentials, group)
    _once(context, device.port)
    count, spent = 0, cpu_seconds(device.pid)
    until = time.monotonic() + seconds
    while count == 0 or time.monotonic() < until:
        _once(context, device.port)
        count += 1
    return (cpu_seconds(device.pid) - spent) / count * 1e6


def _context(credentials: Path, group: str) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.use_certificate_chain_file(str(credentials / "chain.pem"))
    context.use_privatekey_file(str(credentials / "key.pem"))
    context.load_verify_locations(str(credentials / "roots.pem"))
    context.set_verify(SSL.VERIFY_PEER)
    if lib.SSL_CTX_set1_curves_list(context._context, group.encode("ascii")) != 1:
        raise ValueError(f"this OpenSSL has no {group}")
    return context


def _once(context: SSL.Context, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        tls = SSL.Connection(context, plain)
        tls.set_connect_state()
        tls.do_handshake()
        tls.sendall(_REQUEST)
        try:
            while tls.recv(16384):
                pass
        except SSL.ZeroReturnError:
            tls.shutdown()
