"""
The thread that keeps a stream of the Workload API open.

It passes every message to the listener unchanged. The generated stubs of py-spiffe are used directly: its
``WorkloadApiClient.stream_x509_contexts`` ends for good after one message that it cannot parse, and does not report
while it retries that the identity is denied or the socket missing.
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
from svc.pacing.backoff import Backoff

#: What kept the stream from working.
Cause = Literal["missing", "denied", "unserved", "no_identity", "silent", "no_grpc", "ended", "failed"]

#: After a stream that lasted so long, the pauses start again from the shortest.
STABLE_SECONDS: Final = 5.0
#: The gRPC status of a call that one side has cancelled.
CANCELLED: Final = "CANCELLED"
_CONNECT_SECONDS: Final = 2.0
#: The HTTP/2 preface with an empty SETTINGS frame.
_HTTP2_BEGINNING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
_CAUSES: Final[dict[int, Cause]] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ECONNREFUSED: "unserved",
}


@dataclass(frozen=True, slots=True)
class StreamProblem:
    """
    Why a stream is not open: its kind, the gRPC status or the name of the error number, and the text of the other side
    or the system.
    """

    cause: Cause
    code: str
    detail: str


class StreamListener(Protocol):
    """Receives the events of the stream, on the reactor's thread."""

    def stream_opening(self) -> None:
        """The socket was reached and the call is being made."""

    def got_message(self, message: Any) -> None:
        pass

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


class WatchThread:
    """
    Keeps a stream open until it is stopped.

    ``open_stream`` runs in the thread and may raise :class:`StreamBroken`. ``random`` returns numbers from 0 to 1.
    Setting ``stopping`` ends the thread and its pauses.
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
        #: The call that this side has cancelled, whose end is not a failure.
        self._cancelled: Stream | None = None
        self._done: Deferred[None] = Deferred()

    def start(self) -> None:
        # A daemon thread: a call that cannot be cancelled must not prevent the exit of the process.
        threading.Thread(target=self.run, name="svc-workload-api", daemon=True).start()

    def reopen(self) -> None:
        """End the open call, if any; a new one follows, and the listener is not notified of the end."""
        with self._lock:
            if self._stream is not None:
                self._cancelled = self._stream
                self._stream.cancel()

    def stop(self) -> Deferred[None]:
        """End the thread; fires when it has ended."""
        self._stopping.set()
        self.reopen()
        return self._done

    def run(self) -> None:
        """The loop of the thread: open, deliver, pause, until stopped."""
        failures = 0
        try:
            while not self._stopping.is_set():
                began = self._monotonic()
                problem = self._one_stream()
                failures = 1 if self._monotonic() - began >= STABLE_SECONDS else failures + 1
                if self._stopping.is_set():
                    break
                if problem is not None:
                    self._call_listener(self._listener.stream_failed, problem)
                self._stopping.wait(self._backoff.pause(failures, self._random()))
        finally:
            self._reactor.callFromThread(self._done.callback, None)

    def _one_stream(self) -> StreamProblem | None:
        """Deliver one stream; returns why it ended, or None if this side has cancelled it."""
        stream: Stream | None = None
        try:
            stream = self._open_stream()
            with self._lock:
                self._stream = stream
            self._call_listener(self._listener.stream_opening)
            if self._stopping.is_set():
                stream.cancel()
            for message in stream:
                self._call_listener(self._listener.got_message, message)
        except StreamBroken as broken:
            own = stream is not None and stream is self._cancelled and broken.problem.code == CANCELLED
            return None if own else broken.problem
        except Exception as error:  # noqa: BLE001 - after any failure the thread reports it and tries again
            return StreamProblem("failed", type(error).__name__, str(error))
        finally:
            with self._lock:
                self._stream = self._cancelled = None
        return StreamProblem("ended", "OK", "the server ended the stream")

    def _call_listener(self, method: Callable[..., None], *arguments: Any) -> None:
        if not self._stopping.is_set():
            self._reactor.callFromThread(method, *arguments)


def open_x509_stream(path: str) -> Stream:
    """
    Call ``FetchX509SVID`` (Workload API, section 5.2.1); raises :class:`StreamBroken` if the socket cannot be reached.
    """
    _check_socket(path)
    return _GrpcStream(path)


def answers_http1(path: str) -> bool:
    """
    Whether a service other than a Workload API, such as a PQ issuer, answers the HTTP/2 preface (RFC 9113, 3.4) in
    HTTP/1.1.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
            probe.sendall(_HTTP2_BEGINNING)
            return probe.recv(5) == b"HTTP/"
        except OSError:
            return False


def _check_socket(path: str) -> None:
    """Connect to the socket directly: gRPC does not report whether it is missing, forbidden or unserved."""
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
    """One call over a channel of its own, so that gRPC's pauses between connections do not apply."""

    def __init__(self, path: str) -> None:
        # gRPC takes a third of a second to import and is used in this thread only.
        import grpc
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
        if code is self._grpc.StatusCode.UNAVAILABLE and answers_http1(self._path):
            return StreamProblem("no_grpc", code.name, "it answers in HTTP/1.1, which is not gRPC")
        return StreamProblem(cause, code.name, error.details() or "")
