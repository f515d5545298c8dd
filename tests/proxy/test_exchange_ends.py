"""Every exchange is reported once when it ends and measured at most once, consistent with its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.proxy.connection_settings import LimitSettings
from svc.proxy.http.client import ClientConnection
from svc.proxy.reporter import ExchangeSummary
from svc.store.errors import StoreClosed
from tests.proxy.policies import admit_nobody
from tests.proxy.rig import Rig, Wire, lose

SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"
HEAD, REST = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"cde"
REQUESTS = "svc_proxy_request_duration_seconds_count"
LOOKUPS = "svc_proxy_notary_lookup_duration_seconds_count"


class Scene:
    """One connection through a listener, with the level that it requests."""

    def __init__(self, level: Level, inbound: bool, *, denied: bool = False) -> None:
        self.level = level
        limits = LimitSettings.model_validate({"body": "16B", "head": "1KiB"})
        self.rig = Rig(inbound=inbound, limits=limits, policies=admit_nobody() if denied else None)
        self.client: ClientConnection
        self.wire: Wire
        self.client, self.wire = self.rig.client()

    def ask(self, method: bytes = b"GET", fields: bytes = b"", body: bytes = b"", path: bytes = b"/a?token=x") -> None:
        """Send a request, or its beginning."""
        wanted = b"" if self.level is Level.NONE else b"Svc-Notarization-Level: %b\r\n" % self.level.value.encode()
        self.client.dataReceived(b"%b %b HTTP/1.1\r\nHost: api\r\n%b%b\r\n%b" % (method, path, wanted, fields, body))

    def samples(self, name: str = REQUESTS) -> float:
        """Return the number of measured durations."""
        families = self.rig.registry.collect()
        return sum(each.value for family in families for each in family.samples if each.name == name)


def complete(scene: Scene) -> None:
    scene.ask(b"POST", b"Content-Length: 3\r\n", b"abc")
    scene.rig.respond(HEAD + REST)


def left_in_request(scene: Scene) -> None:
    scene.ask(b"POST", b"Content-Length: 9\r\n", b"abc")
    lose(scene.client)


def left_while_connecting(scene: Scene) -> None:
    scene.rig.endpoint.manual = True
    scene.ask()
    lose(scene.client)


def left_while_waiting(scene: Scene) -> None:
    scene.ask()
    lose(scene.client)


def left_in_response(scene: Scene) -> None:
    scene.ask()
    scene.rig.respond(HEAD)
    lose(scene.client)


def left_in_commit(scene: Scene) -> None:
    scene.rig.store.hold = True
    scene.ask(b"POST", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n")
    scene.rig.respond(HEAD + REST)
    lose(scene.client)
    scene.rig.store.release()


def cut_in_commit(scene: Scene) -> None:
    scene.rig.store.hold = True
    scene.ask()
    scene.rig.respond(HEAD + REST)
    scene.client.end_now(ExchangeOutcome.CREDENTIALS_EXPIRED, "credentials_expired")
    scene.rig.store.release()


def record_failed(scene: Scene) -> None:
    scene.rig.store.failure = StoreClosed()
    scene.ask()
    scene.rig.respond(HEAD + REST)


def left_in_commit_that_fails(scene: Scene) -> None:
    commit: Deferred[Any] = Deferred()
    scene.rig.store.put_receipt = lambda _receipt: commit  # type: ignore[assignment]
    scene.rig.store.put_draft = lambda _draft, _complete: commit  # type: ignore[assignment]
    scene.ask()
    scene.rig.respond(HEAD + REST)
    lose(scene.client)
    commit.errback(Failure(StoreClosed()))


def left_and_record_failed(scene: Scene) -> None:
    scene.rig.store.failure = StoreClosed()
    scene.ask()
    scene.rig.respond(HEAD)
    lose(scene.client)


def application_closed(scene: Scene) -> None:
    scene.ask()
    scene.rig.lose_upstream()


def application_broke_off(scene: Scene) -> None:
    scene.ask()
    scene.rig.respond(HEAD)
    scene.rig.lose_upstream()


def unreachable(scene: Scene) -> None:
    scene.rig.endpoint.refuse = OSError("no")
    scene.ask()


def no_answer_in_time(scene: Scene) -> None:
    scene.ask()
    scene.rig.sweep(61.0)


def late_in_response(scene: Scene) -> None:
    scene.ask()
    scene.rig.respond(HEAD)
    scene.rig.sweep(301.0)


def denied(scene: Scene) -> None:
    scene.ask()


def declared_too_large(scene: Scene) -> None:
    scene.ask(b"POST", b"Content-Length: 17\r\n")


def grown_too_large(scene: Scene) -> None:
    scene.ask(b"POST", b"Transfer-Encoding: chunked\r\n", b"11\r\n%b\r\n" % (b"x" * 17))


def own_answer(scene: Scene) -> None:
    scene.ask(b"OPTIONS", b"Max-Forwards: 0\r\n")


def head_request(scene: Scene) -> None:
    scene.ask(b"HEAD")
    scene.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")


def upgraded(scene: Scene) -> None:
    scene.ask(fields=b"Connection: upgrade\r\nUpgrade: chat\r\n")
    scene.rig.respond(SWITCH)
    scene.client.dataReceived(b"hello")
    scene.rig.respond(b"world!")
    lose(scene.client)


def left_in_commit_of_upgrade(scene: Scene) -> None:
    scene.rig.store.hold = True
    scene.ask(fields=b"Connection: upgrade\r\nUpgrade: chat\r\n")
    scene.rig.respond(SWITCH)
    lose(scene.client)
    scene.rig.store.release()


def drained(scene: Scene) -> None:
    scene.ask()
    scene.client.end_now(ExchangeOutcome.SERVER_ABORTED, "drain")


def unreadable(scene: Scene) -> None:
    scene.client.dataReceived(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")


def head_too_large(scene: Scene) -> None:
    scene.client.dataReceived(b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (b"x" * 2000))


def head_too_late(scene: Scene) -> None:
    scene.client.dataReceived(b"GET / HTTP/1.1\r\nHo")
    scene.rig.sweep(11.0)


def body_unreadable(scene: Scene) -> None:
    scene.ask(b"POST", b"Transfer-Encoding: chunked\r\n", b"x")


def lookup(scene: Scene) -> None:
    scene.ask(path=b"/.well-known/svc-notary/v1/statements/current")


class End(NamedTuple):
    """Expected result: outcome, status, octets of request and response, and whether a request was read."""

    act: Callable[[Scene], None]
    outcome: ExchangeOutcome
    status: int | None
    octets: tuple[int, int] | None = None
    read: bool = True


C, LEFT, BROKEN, LATE = (
    ExchangeOutcome.COMPLETE,
    ExchangeOutcome.CLIENT_ABORTED,
    ExchangeOutcome.SERVER_ABORTED,
    ExchangeOutcome.TIMEOUT,
)
#: The same at every level and in both directions.
ENDS = (
    End(complete, C, 200, (3, 5)),
    End(left_in_request, LEFT, None, (3, 0)),
    End(left_while_connecting, LEFT, None, (0, 0)),
    End(left_while_waiting, LEFT, None, (0, 0)),
    End(left_in_response, LEFT, 200, (0, 2)),
    End(left_in_commit, C, 200, (3, 5)),
    End(cut_in_commit, C, 200, (0, 5)),
    End(application_closed, C, 502),
    End(application_broke_off, BROKEN, 200, (0, 2)),
    End(unreachable, C, 502),
    End(no_answer_in_time, C, 504),
    End(late_in_response, LATE, 200, (0, 2)),
    End(declared_too_large, C, 413),
    End(grown_too_large, C, 413),
    End(own_answer, C, 200, (0, 0)),
    End(head_request, C, 200, (0, 0)),
    End(upgraded, ExchangeOutcome.UPGRADED, 101, (5, 6)),
    End(drained, BROKEN, None, (0, 0)),
    End(unreadable, C, 400, None, False),
    End(head_too_large, C, 431, None, False),
    End(head_too_late, C, 408, None, False),
    End(body_unreadable, LEFT, None, (0, 0)),
)


class EndTests(SynchronousTestCase):
    """Each way to end, at each level, in both directions."""

    def checked(self, scene: Scene, end: End) -> ExchangeSummary:
        """Run the scene and compare the report, the metrics and the record with the expected end."""
        end.act(scene)
        [summary] = scene.rig.reporter.summaries
        if summary.outcome is not ExchangeOutcome.UPGRADED:
            # What follows on an upgraded connection is not an exchange.
            lose(scene.client)
        self.assertEqual(len(scene.rig.reporter.summaries), 1)
        self.assertEqual((summary.outcome, summary.status), (end.outcome, end.status))
        if end.octets is not None:
            self.assertEqual((summary.request_octets, summary.response_octets), end.octets)
        if end.read:
            self.assertEqual(summary.path, b"/a")
        self.assertEqual(bool(summary.method), end.read)
        self.assertEqual(summary.seconds is not None, end.read)
        self.assertEqual(scene.samples(), 1 if end.read and end.status is not None else 0)
        self.assertEqual(scene.rig.notarizer.in_flight, 0)
        if summary.receipt_id is not None:
            receipt = self.successResultOf(scene.rig.store.get_receipt(summary.receipt_id))
            assert receipt is not None
            self.assertEqual((receipt.outcome, receipt.level), (summary.outcome.value, summary.level.value))
        return summary

    def test_everywhere(self) -> None:
        """Each end gives one report, one duration if there was a response to a request, and a matching record."""
        for inbound in (True, False):
            for level in Level:
                for end in ENDS:
                    if end.act is declared_too_large and not inbound:
                        # The limit for the body applies when the body arrives.
                        continue
                    if end.act is cut_in_commit and not (inbound and level.recorded):
                        continue
                    scene = Scene(level, inbound)
                    summary = self.checked(scene, end)
                    place = ("web", "inbound" if inbound else "outbound")
                    self.assertEqual((summary.listener, summary.direction), place)
                    self.assertEqual(bool(summary.peer), inbound)
                    admitted = end.read and inbound and level.recorded and end.act is not declared_too_large
                    self.assertEqual(summary.recorded, admitted, end.act.__name__)
                    self.assertEqual(summary.receipt_id is not None, admitted, end.act.__name__)
                    if admitted:
                        self.assertIs(summary.level, level)

    def test_policy(self) -> None:
        """A denied request is an exchange with the proxy's own response."""
        for level in Level:
            summary = self.checked(Scene(level, True, denied=True), End(denied, C, 403, None))
            self.assertFalse(summary.recorded)

    def test_denial_names_its_request(self) -> None:
        """The report of a denial has listener and path."""
        scene = Scene(Level.NONE, True, denied=True)
        scene.ask()
        self.assertEqual(scene.rig.reporter.requests, [("web", b"/a")])

    def test_lost_records(self) -> None:
        """An exchange whose record is lost is aborted by the server or by its client, and has no receipt ID."""
        for level in (Level.LOG_REQUEST, Level.SIGN_REQUEST):
            for end in (
                End(record_failed, BROKEN, 200, (0, 5)),
                End(left_and_record_failed, LEFT, 200, (0, 2)),
                End(left_in_commit_that_fails, LEFT, 200, (0, 5)),
            ):
                summary = self.checked(Scene(level, True), end)
                self.assertEqual((summary.recorded, summary.receipt_id), (True, None))

    def test_upgrade_that_is_left_early(self) -> None:
        """If a client disconnects while the record of its upgrade is written, the outcome stays that of the record."""
        for level in (Level.LOG_REQUEST, Level.SIGN_REQUEST):
            end = End(left_in_commit_of_upgrade, ExchangeOutcome.UPGRADED, 101, (0, 0))
            self.assertIsNotNone(self.checked(Scene(level, True), end).receipt_id)

    def test_lookups(self) -> None:
        """A request for a statement is an exchange with metrics of its own."""
        scene = Scene(Level.NONE, True)
        lookup(scene)
        [summary] = scene.rig.reporter.summaries
        self.assertEqual((summary.lookup, summary.status, summary.outcome), (True, 200, C))
        self.assertEqual((scene.samples(), scene.samples(LOOKUPS)), (0, 1))

    def test_measured_without_access_log(self) -> None:
        """Without an access log durations are measured as before, but no summary of complete exchanges is built."""
        for level in (Level.NONE, Level.LOG_REQUEST):
            scene = Scene(level, True)
            reporter = scene.rig.reporter
            reporter.every_exchange = reporter.recorded_exchanges = False
            for _ in range(3):
                complete(scene)
            self.assertEqual((scene.samples(), reporter.summaries), (3, []))
            reporter.recorded_exchanges = True
            complete(scene)
            self.assertEqual(int(level.recorded), len(reporter.summaries))

    def test_duration_of_a_client_that_left(self) -> None:
        """The duration ends when the client disconnects, not when the record is durable."""
        scene = Scene(Level.SIGN_REQUEST, True)
        scene.rig.store.hold = True
        scene.ask()
        scene.rig.clock.advance(2.0)
        scene.rig.respond(HEAD + REST)
        lose(scene.client)
        scene.rig.clock.advance(5.0)
        self.assertEqual(scene.rig.reporter.summaries, [])
        scene.rig.store.release()
        [summary] = scene.rig.reporter.summaries
        self.assertEqual((summary.seconds, summary.outcome), (2.0, C))


STEPS = st.lists(
    st.sampled_from(
        ("get", "post", "piece", "last", "upgrade", "head", "rest", "whole", "broken", "late", "release", "lookup")
    ),
    max_size=30,
)


class AnyCourseTests(SynchronousTestCase):
    """Any sequence of events on a connection."""

    @given(STEPS, st.sampled_from(list(Level)), st.booleans())
    def test_each_once(self, steps: list[str], level: Level, inbound: bool) -> None:
        """Each exchange that began is reported once; those with a response are measured."""
        scene = Scene(level, inbound)
        rig, sent = scene.rig, 0
        rig.store.hold = True
        for step in steps:
            path = b"/%d" % sent
            if step in ("get", "post", "upgrade", "lookup"):
                sent += 1
            if step == "get":
                scene.ask(path=path)
            elif step == "lookup":
                scene.ask(path=b"/.well-known/svc-notary/v1?%b" % path)
            elif step == "post":
                scene.ask(b"POST", b"Transfer-Encoding: chunked\r\n", b"1\r\nx\r\n", path)
            elif step == "upgrade":
                scene.ask(fields=b"Connection: upgrade\r\nUpgrade: chat\r\n", path=path)
            elif step == "piece":
                scene.client.dataReceived(b"1\r\nx\r\n")
            elif step == "last":
                scene.client.dataReceived(b"0\r\n\r\n")
            elif step == "release":
                rig.store.release()
            elif step == "late":
                rig.sweep(61.0)
            elif rig.endpoint.connections and not rig.upstream()[0].dead:
                if step == "broken":
                    rig.lose_upstream()
                else:
                    rig.respond({"head": HEAD, "rest": REST, "whole": HEAD + REST}[step])
            if scene.wire.aborted or scene.wire.disconnecting:
                break
        lose(scene.client)
        rig.store.release()
        self.assertEqual(scene.rig.notarizer.in_flight, 0)
        found = [each for each in rig.reporter.summaries if each.method]
        paths = [each.path for each in found if not each.lookup]
        self.assertEqual(len(paths), len(set(paths)))
        self.assertLessEqual(len(found), sent)
        answered = sum(each.status is not None for each in found)
        self.assertEqual(scene.samples() + scene.samples(LOOKUPS), answered)
        self.assertGreaterEqual(len(found), min(1, sent))
        for wire in (wire for _connection, wire in rig.endpoint.connections):
            self.assertIsInstance(wire, StringTransport)
            for path in (line.split()[1] for line in wire.value().split(b"\r\n") if line.endswith(b" HTTP/1.1")):
                self.assertIn(path, paths)
