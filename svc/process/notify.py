"""What a service manager is told: the protocol of ``sd_notify(3)``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """
    Tell the service manager the state of this process; without ``NOTIFY_SOCKET`` nobody asked.

    Raises:
        OSError: the socket does not take it.
    """
    path = environment.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        # A name that begins with @ is abstract.
        sender.sendto(state.encode("ascii"), f"\0{path[1:]}" if path[0] == "@" else path)
