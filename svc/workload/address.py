"""The path of a Workload API socket, and of files beside it."""

from __future__ import annotations

import os

from svc.transport.addresses import UnixAddress, parse_address
from svc.transport.errors import AddressInvalid
from svc.workload.errors import SocketAddressInvalid


def socket_path(address: str) -> str:
    """
    The path of ``unix:///absolute/path``, ``unix:/absolute/path`` or an absolute path (SPIFFE Workload Endpoint,
    section 4).

    Raises :class:`SocketAddressInvalid`.
    """
    try:
        parsed = parse_address(f"unix://{address}" if address.startswith("/") else address)
    except AddressInvalid as error:
        raise SocketAddressInvalid(address=address, defect=str(error)) from error
    if not isinstance(parsed, UnixAddress):
        raise SocketAddressInvalid(address=address, defect="it is not the address of a Unix socket")
    if parsed.path.endswith("/") or set(parsed.path) & set("?#"):
        raise SocketAddressInvalid(address=address, defect="the path is a folder, or has a query or fragment")
    return parsed.path


def beside(address: str, name: str) -> str:
    """The path of a file in the folder of a socket."""
    return os.path.join(os.path.dirname(socket_path(address)), name)
