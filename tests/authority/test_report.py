"""Tests of svc.authority.report, of Changes and of svc.authority.grpc_server."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Mapping
from typing import Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError
from hypothesis import given
from hypothesis import strategies as st
from spiffe._proto import workload_pb2
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.attestation import Caller
from svc.authority.domain import Changes
from svc.authority.grpc_server import MAX_REQUEST, CallerLimits, calling_process, receive
from svc.authority.report import MAX_NAMES, AuthorityLog, HandshakeLog, LibraryLogHandler
from svc.identity import SpiffeID
from svc.pqissuer.endpoint import CallerRefused
from svc.process.status import IssuedCounts
from svc.telemetry.events.registry import EVENTS
from svc.transport.errors import HandshakeFailed, HandshakeTimeout, PeerDenied, PeerSvidInvalid, TransportError
from svc.workload.files import FileMissing
from tests.workload.messages import AUTHORITY

CALLER = Caller(17, 1000, 100, "/bin/sh")
NAME = SpiffeID.parse("spiffe://example.org/a")


class AuthorityLogTests(SynchronousTestCase):
    """Records of the authority."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.log = AuthorityLog(self.clock.seconds)

    def records(self, act: Any) -> list[Mapping[str, Any]]:
        """The records of a call; each names a registered event."""
        with capturedLogs() as captured:
            act()
        found = [each for each in captured if "svc_event" in each]
        for each in found:
            self.assertIn(each["svc_event"], EVENTS)
        return found  # type: ignore[return-value]

    def test_grants(self) -> None:
        """Each issued SVID is one record; bundles are not logged."""
        found = self.records(lambda: self.log.granted(CALLER, "FetchX509SVID", (NAME, NAME)))
        self.assertEqual([each["svc_event"] for each in found], ["svc.authority.svid.issued"] * 2)
        self.assertEqual(found[0]["svc_fields"], {"peer_spiffe_id": str(NAME)})
        self.assertEqual(found[0]["svc_attributes"]["uid"], 1000)
        self.assertEqual(self.records(lambda: self.log.granted(CALLER, "FetchX509Bundles", (NAME,))), [])

    def test_counts(self) -> None:
        """What was issued is counted by kind, and refusals by reason, also those without a record."""
        self.log.granted(CALLER, "FetchX509SVID", (NAME, NAME))
        self.log.granted(CALLER, "FetchJWTSVID", (NAME,))
        self.log.granted(CALLER, "FetchX509Bundles", (NAME,))
        self.log.leaf_issued(AUTHORITY.svid("/a").chain[0])
        self.assertEqual(IssuedCounts(2, 1, 1), self.log.issued)
        for _ in range(3):
            self.refuse()
        self.log.leaf_refused(CallerRefused(defect="x"), NAME)
        self.assertEqual({"permission_denied": 3, "caller_refused": 1}, self.log.refusals)

    def refuse(self, uid: int = 1000) -> None:
        caller = Caller(17, uid, 100, "/bin/sh")
        self.log.refused(caller, "FetchX509SVID", Status.PERMISSION_DENIED, "no identity issued")

    def test_refusals_are_bounded(self) -> None:
        """A user that is refused without end causes one record a second, which counts the others."""
        found = self.records(lambda: [self.refuse() for _ in range(100)])
        self.assertEqual(len(found), 1)
        self.clock.advance(1)
        (record,) = self.records(self.refuse)
        self.assertEqual(record["svc_attributes"]["suppressed"], 99)
        self.assertEqual(len(self.records(lambda: self.refuse(1001))), 1)

    def test_refusals_of_many_users(self) -> None:
        """The memory of refusals is bounded: after 1024 other users the first one is evicted."""
        self.assertEqual(len(self.records(lambda: self.refuse(0))), 1)
        for uid in range(1, 1024):
            self.refuse(uid)
        self.assertEqual(self.records(lambda: self.refuse(0)), [])
        self.refuse(1024)
        self.assertEqual(len(self.records(lambda: self.refuse(0))), 1)

    def test_nodes_behind(self) -> None:
        """A record counts all nodes and names twenty; none is written where there are none."""
        self.assertEqual([], self.records(lambda: self.log.nodes_behind(())))
        for count, more in ((MAX_NAMES, "node19 serve no"), (MAX_NAMES + 1, "node19 and 1 more serve no")):
            names = [f"node{number}" for number in range(count)]
            (found,) = self.records(lambda names=names: self.log.nodes_behind(names))
            self.assertEqual({"nodes": count}, found["svc_attributes"])
            self.assertIn(more, found["svc_fields"]["detail"])

    def test_unknown_caller(self) -> None:
        """A refusal without a known caller is logged too."""
        found = self.records(lambda: self.log.refused(None, "FetchX509SVID", Status.INVALID_ARGUMENT, "header"))
        self.assertEqual(found[0]["svc_fields"]["detail"], "header")

    def test_others(self) -> None:
        """Refused leaves and files are logged with their reason."""
        (leaf,) = self.records(lambda: self.log.leaf_refused(CallerRefused(defect="x"), 1000))
        self.assertEqual(leaf["svc_fields"]["detail_reason"], "caller_refused")
        self.assertEqual(leaf["svc_attributes"]["uid"], 1000)
        (leaf,) = self.records(lambda: self.log.leaf_refused(CallerRefused(defect="x"), NAME))
        self.assertEqual(leaf["svc_fields"]["peer_spiffe_id"], str(NAME))
        (leaf,) = self.records(lambda: self.log.leaf_refused(CallerRefused(defect="x"), None))
        self.assertNotIn("uid", leaf["svc_attributes"])
        (file,) = self.records(lambda: self.log.file_refused("/f", FileMissing(path="/f")))
        self.assertEqual(file["svc_attributes"], {"path": "/f"})

    def test_handshakes(self) -> None:
        """A peer whose certificate is refused is logged with the precise reason; one that disconnected is not."""
        log = HandshakeLog(self.log)

        def end(kind: type[TransportError], detail: str) -> None:
            error = kind(address="192.0.2.1:4711", alert="", detail=detail, spiffe_id=NAME, cause="no")
            log.handshake_failed("server", error, "192.0.2.1:4711")

        (record,) = self.records(lambda: end(PeerDenied, "wrong_trust_domain"))
        self.assertEqual(record["svc_fields"]["detail_reason"], "wrong_trust_domain")
        self.assertIn("192.0.2.1:4711", record["svc_fields"]["detail"])
        self.assertEqual(record["svc_fields"]["peer_spiffe_id"], str(NAME))
        self.assertEqual(len(self.records(lambda: end(PeerSvidInvalid, "expired"))), 1)
        self.assertEqual(self.records(lambda: end(HandshakeFailed, "the connection was lost")), [])
        self.assertEqual(self.records(lambda: end(HandshakeTimeout, "")), [])

    def test_libraries(self) -> None:
        """Records of the standard library are passed to Twisted's logger, one line each."""
        with capturedLogs() as captured:
            LibraryLogHandler().emit(logging.LogRecord("grpclib.server", logging.WARNING, "", 0, "a\nb", None, None))
        self.assertEqual((captured[0]["library"], captured[0]["text"]), ("grpclib.server", "a"))


class ChangesTests(SynchronousTestCase):
    """Waking streams."""

    def test_already_changed(self) -> None:
        """A waiter that missed a change does not wait."""
        changes = Changes()
        changes.notify()
        self.assertTrue(asyncio.run(changes.wait_beyond(0, 60)))

    def test_all_are_woken(self) -> None:
        """One change wakes all waiters."""

        async def scene() -> list[bool]:
            changes = Changes()
            waiting = [asyncio.ensure_future(changes.wait_beyond(0, 60)) for _ in range(3)]
            await asyncio.sleep(0)
            changes.notify()
            return await asyncio.gather(*waiting)

        self.assertEqual(asyncio.run(scene()), [True, True, True])

    def test_nothing_happens(self) -> None:
        """The wait ends without a change and removes its event."""
        changes = Changes()
        self.assertFalse(asyncio.run(changes.wait_beyond(0, 0)))
        self.assertFalse(asyncio.run(changes.wait_beyond(0, -5)))
        self.assertEqual(changes._waiting, set())


class CallerLimitsTests(SynchronousTestCase):
    """How many connections may be open."""

    def test_limits(self) -> None:
        """Both limits are exact, and a closed connection releases its slot."""
        limits = CallerLimits(total=3, for_one_user=2)
        self.assertEqual([limits.enter(1) for _ in range(3)], [True, True, False])
        self.assertEqual([limits.enter(2) for _ in range(2)], [True, False])
        limits.leave(1)
        self.assertTrue(limits.enter(2))
        self.assertFalse(limits.enter(3))


class Data:
    """The data of one call."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.connection = object()

    async def recv_data(self, size: int) -> bytes:
        found, self.data = self.data[:size], self.data[size:]
        return found


class Call:
    """The parts of a grpclib stream that are used."""

    def __init__(self, data: bytes) -> None:
        self._stream = Data(data)


class ReceiveTests(SynchronousTestCase):
    """Reading a request."""

    def read(self, data: bytes) -> Any:
        return asyncio.run(receive(Call(data), workload_pb2.JWTSVIDRequest))

    def refusal(self, data: bytes) -> Status:
        """The status of an invalid request."""
        return self.assertRaises(GRPCError, self.read, data).status

    def test_good(self) -> None:
        """A message is read."""
        message = workload_pb2.JWTSVIDRequest(audience=["a"]).SerializeToString()
        self.assertEqual(list(self.read(struct.pack(">BI", 0, len(message)) + message).audience), ["a"])

    def test_size(self) -> None:
        """A message beyond the limit is refused by its prefix; one at the limit is read."""
        message = workload_pb2.JWTSVIDRequest(audience=["a" * (MAX_REQUEST - 4)]).SerializeToString()
        self.assertEqual(len(message), MAX_REQUEST)
        self.assertEqual(len(self.read(struct.pack(">BI", 0, len(message)) + message).audience), 1)
        self.assertEqual(self.refusal(struct.pack(">BI", 0, MAX_REQUEST + 1)), Status.RESOURCE_EXHAUSTED)

    def test_bad(self) -> None:
        """Missing, compressed and malformed messages have their status."""
        self.assertEqual(self.refusal(b""), Status.INVALID_ARGUMENT)
        self.assertEqual(self.refusal(struct.pack(">BI", 1, 0)), Status.UNIMPLEMENTED)
        self.assertEqual(self.refusal(struct.pack(">BI", 0, 1) + b"\xff"), Status.INVALID_ARGUMENT)

    @given(st.binary(max_size=40))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets are a message or a typed error."""
        try:
            self.assertIsInstance(self.read(data), workload_pb2.JWTSVIDRequest)
        except GRPCError as error:
            self.assertIsInstance(error.status, Status)

    def test_unattested(self) -> None:
        """A call over a connection without a known process is refused."""
        error = self.assertRaises(GRPCError, calling_process, Call(b""))
        self.assertEqual(error.status, Status.PERMISSION_DENIED)
