"""
The thread that keeps a stream of the Workload API open.

Owns the connection, its renewal with growing pauses, and the hand-over to the reactor. It believes and judges
nothing: every message goes to the listener as it came.

The generated stubs of py-spiffe are used directly. Its ``WorkloadApiClient.stream_x509_contexts`` ends for ever after
one message that it cannot parse, and tells nobody that the identity is denied or the socket missing while it retries.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads

from svc import naming

#: What kept the stream from working.
Cause = Literal["missing", "denied", "dead", "no_identity", "silent", "no_grpc", "ended", "failed"]

#: A stream that lasted so long was a good one: the next attempt comes at once again.
STABLE_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 2.0
#: The preface of HTTP/2 and an empty SETTINGS frame.
_HTTP2_BEGINNING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
_CAUSES: Final[dict[int, Cause]] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ECONNREFUSED: "dead",
}


@dataclass(frozen=True, slots=True)
class StreamProblem:
    """
    Why a stream is not open.

    Args:
        cause: the kind.
        code: the gRPC status or the name of the error number.
        detail: what the other side or the system said.
    """

    cause: Cause
    code: str
    detail: str


class StreamListener(Protocol):
    """Hears of the stream, on the reactor's thread."""

    def stream_opening(self) -> None:
        """A connection is there and the call is being made."""

    def got_message(self, message: Any) -> None:
        """A message has arrived."""

    def stream_failed(self, problem: StreamProblem) -> None:
        """There is no stream; another attempt follows."""


class Stream(Protocol):
    """One open call."""

    def __iter__(self) -> Iterator[Any]:
        """The messages; raises :class:`StreamBroken` at the end."""

    def cancel(self) -> object:
        """End the call from another thread."""


class StreamBroken(Exception):
    """Carries the :class:`StreamProblem` out of an open stream."""

    def __init__(self, problem: StreamProblem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    How long to pause before the next attempt: exponential with jitter.

    Args:
        first: the longest first pause in seconds.
        longest: the longest pause at all.
    """

    first: float = 0.1
    longest: float = 5.0

    def pause(self, failures: int, random: float) -> float:
        """
        Choose a pause.

        Args:
            failures: how many attempts have failed in a row, from 1.
            random: a number from 0 to 1.

        Returns:
            Seconds: at least half of the present bound, so that attempts never become a busy loop.
        """
        bound = min(self.longest, self.first * 2.0 ** min(failures - 1, 16))
        return bound * (0.5 + random / 2)


class WatchThread:
    """
    Keeps a stream open until it is stopped.

    Args:
        open_stream: opens a call; runs in the thread; raises :class:`StreamBroken`.
        listener: who hears of it.
        reactor: where the listener lives.
        random: gives numbers from 0 to 1.
        backoff: the pauses.
        monotonic: tells the time since anything, in seconds.
        stopping: what is set to stop and waited for in pauses; a new one by default.
    """

    def __init__(
        self,
        open_stream: Callable[[], Stream],
        listener: StreamListener,
        reactor: IReactorFromThreads,
        *,
        random: Callable[[], float],
        backoff: Backoff | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        stopping: threading.Event | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._open_stream = open_stream
        self._listener = listener
        self._reactor = reactor
        self._random = random
        self._backoff = backoff or Backoff()
        self._stopping = stopping or threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._done: Deferred[None] = Deferred()

    def start(self) -> None:
        """Start the thread."""
        # A daemon thread: a call that cannot be cancelled must not keep the process from ending.
        threading.Thread(target=self.run, name="svc-workload-api", daemon=True).start()

    def reopen(self) -> None:
        """End the open call, if any; a new one follows."""
        with self._lock:
            if self._stream is not None:
                self._stream.cancel()

    def stop(self) -> Deferred[None]:
        """
        End the thread.

        Returns:
            A Deferred that fires when the thread has done its last act.
        """
        self._stopping.set()
        self.reopen()
        return self._done

    def run(self) -> None:
        """Be the thread: open, deliver, pause, until stopped."""
        failures = 0
        try:
            while not self._stopping.is_set():
                began = self._monotonic()
                problem = self._one_stream()
                failures = 1 if self._monotonic() - began >= STABLE_SECONDS else failures + 1
                if self._stopping.is_set():
                    break
                self._tell(self._listener.stream_failed, problem)
                self._stopping.wait(self._backoff.pause(failures, self._random()))
        finally:
            self._reactor.callFromThread(self._done.callback, None)

    def _one_stream(self) -> StreamProblem:
        try:
            stream = self._open_stream()
            with self._lock:
                self._stream = stream
            self._tell(self._listener.stream_opening)
            if self._stopping.is_set():
                stream.cancel()
            for message in stream:
                self._tell(self._listener.got_message, message)
        except StreamBroken as broken:
            return broken.problem
        except Exception as error:  # noqa: BLE001 - whatever fails in this thread, it must go on trying and say why
            return StreamProblem("failed", type(error).__name__, str(error))
        finally:
            with self._lock:
                self._stream = None
        return StreamProblem("ended", "OK", "the server ended the stream")

    def _tell(self, told: Callable[..., None], *arguments: Any) -> None:
        if not self._stopping.is_set():
            self._reactor.callFromThread(told, *arguments)


def open_x509_stream(path: str) -> Stream:
    """
    Call ``FetchX509SVID`` (Workload API, section 5.2.1).

    Args:
        path: the Unix socket.

    Returns:
        The open call.

    Raises:
        StreamBroken: the socket cannot be reached.
    """
    _knock(path)
    return _GrpcStream(path)


def speaks_http1(path: str) -> bool:
    """
    Find out whether another service than a Workload API has this socket, such as a PQ issuer.

    Args:
        path: the Unix socket.

    Returns:
        Whether it answers the beginning of HTTP/2 (RFC 9113, 3.4) in HTTP/1.1.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
            probe.sendall(_HTTP2_BEGINNING)
            return probe.recv(5) == b"HTTP/"
        except OSError:
            return False


def _knock(path: str) -> None:
    """Try the socket by hand: gRPC hides whether it is missing, forbidden or dead."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
        except TimeoutError as error:
            raise StreamBroken(StreamProblem("silent", "ETIMEDOUT", "it does not accept connections")) from error
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "EIO")
            cause = _CAUSES.get(error.errno or 0, "failed")
            raise StreamBroken(StreamProblem(cause, code, error.strerror or str(error))) from error


class _GrpcStream:
    """One call over a channel of its own, so that gRPC's own pauses between connections never apply."""

    def __init__(self, path: str) -> None:
        # gRPC takes a third of a second to import and is needed in this thread alone.
        import grpc  # type: ignore[import-untyped]
        from spiffe._proto import workload_pb2, workload_pb2_grpc

        self._grpc = grpc
        self._path = path
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        self._channel = grpc.insecure_channel(f"unix://{path}", options=options)
        stub = workload_pb2_grpc.SpiffeWorkloadAPIStub(self._channel)
        metadata = ((naming.WORKLOAD_API_HEADER, "true"),)
        self._call = stub.FetchX509SVID(workload_pb2.X509SVIDRequest(), metadata=metadata)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._call
        except self._grpc.RpcError as error:
            raise StreamBroken(self._problem(error)) from error
        finally:
            self._channel.close()

    def cancel(self) -> object:
        return self._call.cancel()

    def _problem(self, error: Any) -> StreamProblem:
        code = error.code()
        denied = code is self._grpc.StatusCode.PERMISSION_DENIED
        cancelled = code is self._grpc.StatusCode.CANCELLED
        cause: Cause = "no_identity" if denied else "silent" if cancelled else "failed"
        if code is self._grpc.StatusCode.UNAVAILABLE and speaks_http1(self._path):
            return StreamProblem("no_grpc", code.name, "it answers in HTTP/1.1, which is no gRPC")
        return StreamProblem(cause, code.name, error.details() or "")
