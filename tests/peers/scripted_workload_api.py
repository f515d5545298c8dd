"""
A Workload API that says what a test wants, in threads of the test: true, false, nothing, or no message at all.

It replaces the authority of a proxy, without a post-quantum issuer: such a proxy runs with the profile
``classical``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.serialization import Encoding
from spiffe._proto import workload_pb2

from svc.identity import X509Bundle, X509Svid
from svc.testing.ca import TestAuthority, chain_der, key_der


def bundle_der(bundle: X509Bundle) -> bytes:
    """
    Write a bundle as the Workload API sends it.

    Args:
        bundle: the roots.

    Returns:
        Their certificates one behind the other.
    """
    return b"".join(each.certificate.public_bytes(Encoding.DER) for each in bundle.anchors)


class ScriptedWorkloadApi:
    """
    The Workload API.

    Args:
        stack: ends it.
        path: of its socket; what is there is replaced.
        authority: vouches for what it says; a new one of ``example.org`` by default.

    Attributes:
        address: of its socket.
        silent: whether it accepts calls and answers none.
        calls: how many calls were made.
    """

    trust_domain = "example.org"
    pq_address = ""

    def __init__(self, stack: ExitStack, path: Path, authority: TestAuthority | None = None) -> None:
        self.authority = authority or TestAuthority(self.trust_domain, now=datetime.now(UTC))
        self.address = f"unix://{path}"
        self.silent = False
        self.calls = 0
        self._said: list[bytes] = []
        self._changed = threading.Condition()
        self._ended = False
        path.unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_Method(self._stream),))
        self._server.add_insecure_port(self.address)
        self._server.start()
        stack.callback(self._end)

    def say(self, *messages: bytes | Any) -> None:
        """
        Send messages on all open streams, and the last one on each new stream.

        Args:
            messages: octets, or messages.
        """
        with self._changed:
            self._said += [each if isinstance(each, bytes) else each.SerializeToString() for each in messages]
            self._changed.notify_all()

    def message(self, svid: X509Svid, *, bundle: bytes | None = None) -> Any:
        """
        Make a message.

        Args:
            svid: the only SVID in it.
            bundle: the roots beside it; those of the authority by default.

        Returns:
            An ``X509SVIDResponse``.
        """
        return workload_pb2.X509SVIDResponse(
            svids=[
                workload_pb2.X509SVID(
                    spiffe_id=str(svid.spiffe_id),
                    x509_svid=chain_der(svid),
                    x509_svid_key=key_der(svid),
                    bundle=bundle_der(self.authority.bundle()) if bundle is None else bundle,
                )
            ]
        )

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._server.stop(0).wait(60)

    def _stream(self, _request: bytes, context: Any) -> Iterator[bytes]:
        self.calls += 1
        next_one = max(0, len(self._said) - 1)
        while context.is_active() and not self._ended:
            with self._changed:
                if self.silent or len(self._said) == next_one:
                    self._changed.wait(0.2)
                found = [] if self.silent else self._said[next_one:]
            next_one += len(found)
            yield from found


class _Method(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The one method, whose messages are octets."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def service(self, details: Any) -> Any:
        """Find it."""
        if details.method == "/SpiffeWorkloadAPI/FetchX509SVID":
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return None
