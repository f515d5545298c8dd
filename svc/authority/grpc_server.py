"""
A gRPC server that attests its callers and limits requests and connections.

The only module that uses private names of grpclib.
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

from svc.authority.attestation import CallerNotAttested, CallingProcess

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
        except (CallerNotAttested, OSError):
            transport.close()
            return
        if not self.server.limits.enter(process.uid):
            process.close()
            transport.close()
            return
        self.process = process
        self.server.transports.add(transport)
        self.transport = transport
        # The connection object is what a method handler can reach.
        setattr(self.connection, _PROCESS, process)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        process, self.process = self.process, None
        if process is not None:
            self.server.transports.discard(self.transport)
            self.server.limits.leave(process.uid)
            process.close()


class CallerLimits:
    """Limits open connections in ``total``, each of which costs a descriptor or two, and for each user."""

    def __init__(self, total: int = 2048, for_one_user: int = 512) -> None:
        self._total = total
        self._for_one_user = for_one_user
        self._open: Counter[int] = Counter()

    def enter(self, uid: int) -> bool:
        """Count a connection of a user; False, and not counted, if it is one too many."""
        if self._open.total() >= self._total or self._open[uid] >= self._for_one_user:
            return False
        self._open[uid] += 1
        return True

    def leave(self, uid: int) -> None:
        """Release a connection of a user."""
        self._open[uid] -= 1
        if self._open[uid] <= 0:
            del self._open[uid]


class AttestedServer(grpclib.server.Server):
    """The server; to be made while the event loop runs."""

    def __init__(self, handlers: Collection[Any], limits: CallerLimits) -> None:
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
    """The process that made a call; PERMISSION_DENIED if it is not known."""
    process = getattr(stream._stream.connection, _PROCESS, None)
    if not isinstance(process, CallingProcess):
        raise GRPCError(Status.PERMISSION_DENIED, "the calling process cannot be attested")
    return process


async def receive(stream: Any, message_type: Any, *, max_bytes: int = MAX_REQUEST) -> Any:
    """
    Read the single message of a request.

    Its size is checked before anything is buffered. Raises ``GRPCError``: RESOURCE_EXHAUSTED if it is too large,
    INVALID_ARGUMENT if it is missing or malformed.
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
