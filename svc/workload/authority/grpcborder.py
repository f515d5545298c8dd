"""
The only place that touches the inside of grpclib.

Owns three things that grpclib does not offer: who is at the other end of a connection, a limit on the size of a request
and a limit on the number of connections. Knows nothing of the Workload API.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

import grpclib.server
from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol

from svc.workload.authority.attestation import CallerUnknown, CallingProcess

#: A request of the Workload API holds at most a token and its audiences.
MAX_REQUEST: Final = 64 * 1024
_PREFIX: Final = struct.Struct(">BI")
_PROCESS: Final = "svc_calling_process"


class _AttestedProtocol(H2Protocol):
    """A connection whose process is held from the moment it was accepted."""

    process: CallingProcess | None = None
    server: AttestedServer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        try:
            process = CallingProcess(transport.get_extra_info("socket"))
        except (CallerUnknown, OSError):
            transport.close()
            return
        if not self.server.limits.enter(process.uid):
            process.close()
            transport.close()
            return
        self.process = process
        self.server.transports.add(transport)
        self.transport = transport
        # The connection object of grpclib is what a method handler can reach.
        setattr(self.connection, _PROCESS, process)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        process, self.process = self.process, None
        if process is not None:
            self.server.transports.discard(self.transport)
            self.server.limits.leave(process.uid)
            process.close()


class ConnectionLimits:
    """
    How many connections may be open at once.

    Args:
        total: of all callers; each costs a descriptor or two.
        for_one_user: of one user, so that one cannot lock the others out.
    """

    def __init__(self, total: int = 2048, for_one_user: int = 512) -> None:
        self._total = total
        self._for_one_user = for_one_user
        self._open: Counter[int] = Counter()

    def enter(self, uid: int) -> bool:
        """
        Count a connection in.

        Args:
            uid: whose it is.

        Returns:
            False where it is one too many; it is then not counted.
        """
        if self._open.total() >= self._total or self._open[uid] >= self._for_one_user:
            return False
        self._open[uid] += 1
        return True

    def leave(self, uid: int) -> None:
        """
        Count a connection out.

        Args:
            uid: as in :meth:`enter`.
        """
        self._open[uid] -= 1
        if self._open[uid] <= 0:
            del self._open[uid]


class AttestedServer(grpclib.server.Server):
    """
    A gRPC server that knows its callers; must be made while the event loop runs.

    Args:
        handlers: the services.
        limits: how many connections may be open.
    """

    def __init__(self, handlers: Collection[Any], limits: ConnectionLimits) -> None:
        super().__init__(handlers)
        self.limits = limits
        self.transports: set[asyncio.BaseTransport] = set()

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        protocol = _AttestedProtocol(made.handler, made.config, made.h2_config)
        protocol.server = self
        return protocol

    def close(self) -> None:
        """Stop listening and close every connection; clients see the end of their streams at once."""
        super().close()
        for transport in tuple(self.transports):
            transport.close()


def calling_process(stream: Any) -> CallingProcess:
    """
    Find who made a call.

    Args:
        stream: the grpclib stream of the call.

    Returns:
        The process at the other end of its connection.

    Raises:
        GRPCError: PERMISSION_DENIED where it is not known.
    """
    process = getattr(stream._stream.connection, _PROCESS, None)
    if not isinstance(process, CallingProcess):
        raise GRPCError(Status.PERMISSION_DENIED, "the calling process cannot be attested")
    return process


async def receive(stream: Any, message_type: Any, *, max_bytes: int = MAX_REQUEST) -> Any:
    """
    Read the one message of a request.

    Args:
        stream: the grpclib stream of the call.
        message_type: the protobuf class.
        max_bytes: the largest accepted message; checked before anything is buffered.

    Returns:
        The message.

    Raises:
        GRPCError: RESOURCE_EXHAUSTED when it is too large, INVALID_ARGUMENT when it is missing or malformed.
    """
    data = stream._stream
    prefix = await data.recv_data(_PREFIX.size)
    if len(prefix) != _PREFIX.size:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request has no message")
    compressed, size = _PREFIX.unpack(prefix)
    if compressed:
        raise GRPCError(Status.UNIMPLEMENTED, "compressed messages are not accepted")
    if size > max_bytes:
        raise GRPCError(Status.RESOURCE_EXHAUSTED, f"the request is larger than {max_bytes} octets")
    try:
        return message_type.FromString(await data.recv_data(size))
    except (DecodeError, ValueError, AssertionError) as error:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request is malformed") from error
