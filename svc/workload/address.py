"""
Where the socket of a Workload API stands, and what lies beside it.

Owns the choice of files beside a socket; the spelling of addresses belongs to ``svc.transport.addresses``.
"""

from __future__ import annotations

import os

from svc.transport.addresses import UnixAddress, parse_address
from svc.transport.errors import AddressInvalid
from svc.workload.errors import SocketAddressInvalid


def socket_path(address: str) -> str:
    """
    Read the address of a Unix socket (SPIFFE Workload Endpoint, section 4).

    Args:
        address: ``unix:///absolute/path``, ``unix:/absolute/path`` or the absolute path alone.

    Returns:
        The absolute path.

    Raises:
        SocketAddressInvalid: another scheme, an authority, a relative or over-long path.
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
    """
    Name a file in the folder of a socket.

    Args:
        address: the socket, as :func:`socket_path` reads it.
        name: the file's name.

    Returns:
        The absolute path of the file.

    Raises:
        SocketAddressInvalid: as :func:`socket_path`.
    """
    return os.path.join(os.path.dirname(socket_path(address)), name)
