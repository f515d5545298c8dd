"""How large a record can become: never larger than computed, and nearly as large."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import MAX_ENVELOPE
from svc.identity import SpiffeID
from svc.notary.batch import BATCH_ROOM
from svc.notary.exchange import BodySummary, ExchangeOutcome, Peer, RecordedExchange, TlsFacts, split_target
from svc.notary.level import Level
from svc.notary.receipt import PayloadWriter, ReceiptDraft, Redaction
from svc.notary.record_bound import SIGNATURES_ROOM, RecordBound, largest_limit
from svc.strictjson import b64u_encode, dumps
from svc.wire.http1 import End, MessageLimits, RequestHead, RequestParser, ResponseHead, ResponseParser

LONGEST = SpiffeID.parse("spiffe://" + "d" * 255 + "/" + "/".join(["p" * 250] * 7))
WHEN = datetime(2026, 11, 21, 12, 0, 0, 999999, tzinfo=UTC)
BODY = BodySummary(2**53 - 1, b"\xff" * 32, complete=False)
PEER = Peer(LONGEST, "x" * 43)
#: As long as they get on the wire and in JSON.
NAMES = st.sampled_from([b"cookie", b"Authorization", b"x", b"X-Api-Key", b"x" * 60])
VALUES = st.sampled_from([b"", b"a", b'"', b"\xff", b'\xff"\\' * 200, b"a\tb", b"'" * 700])
#: Few kinds of fields, each several times.
FIELDS = st.lists(st.tuples(NAMES, VALUES, st.integers(1, 25)), max_size=3).map(
    lambda kinds: [(name, value) for name, value, count in kinds for _ in range(count)]
)
TARGETS = st.sampled_from([b"/", b"/?q", b'/"\\', b'/?"' + b"\\" * 900, b"/" + b"a" * 900])


def lines(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Write fields without room between name and value, which is not counted."""
    return b"".join(b"%b:%b\r\n" % field for field in fields)


def draft(
    limits: MessageLimits,
    redaction: Redaction,
    target: bytes,
    asked: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]],
    answered: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]],
) -> ReceiptDraft | None:
    """Make the payload of an exchange whose heads and trailers the parsers accept; None where they refuse one."""
    coding = b"Transfer-Encoding:chunked\r\n"
    request = RequestParser(limits).feed(
        b"POST %b HTTP/1.1\r\nHost:a\r\n%b%b\r\n0\r\n%b\r\n" % (target, coding, lines(asked[0]), lines(asked[1]))
    )
    response = ResponseParser(b"POST", limits).feed(
        b"HTTP/1.1 200 OK\r\n%b%b\r\n0\r\n%b\r\n" % (coding, lines(answered[0]), lines(answered[1]))
    )
    if not request or not response or type(request[-1]) is not End or type(response[-1]) is not End:
        return None
    head, answer = request[0], response[0]
    assert isinstance(head, RequestHead) and isinstance(answer, ResponseHead)
    path, query = split_target(head.target)
    exchange = RecordedExchange(
        level=Level.SIGN_REQUEST,
        nonce="n" * 22,
        jti="j" * 22,
        client=PEER,
        server=PEER,
        tls=TlsFacts("1.3", "SecP384r1MLKEM1024", "TLS_CHACHA20_POLY1305_SHA256", True),
        method="POST",
        scheme="https",
        authority=head.host.decode("latin-1"),
        path=path,
        query=query,
        version="1.1",
        request_headers=tuple(head.fields),
        request_body=BODY,
        request_trailers=tuple(request[-1].trailers),
        status=200,
        response_headers=tuple(answer.fields),
        response_body=BODY,
        response_trailers=tuple(response[-1].trailers),
        received=WHEN,
        completed=WHEN,
        outcome=ExchangeOutcome.CREDENTIALS_EXPIRED,
    )
    return PayloadWriter(redaction, os.urandom).write(exchange, "s" * 43, LONGEST)


def worst(name: bytes, value: bytes, count: int, octets: int) -> list[tuple[bytes, bytes]]:
    """So many fields of which the last fills the octets up."""
    fields = [(name, value)] * count
    left = octets - sum(len(each) + len(value) + 4 for each, value in fields) - 5
    return [*fields, (b"y", b'"' * left)] if left > 0 else fields


class RecordBoundTests(SynchronousTestCase):
    """The arithmetic against the payloads themselves."""

    def check(self, bound: RecordBound, made: ReceiptDraft | None) -> int:
        """Compare one payload with the bound; return how many octets it is smaller."""
        if made is None:
            return 0
        salts = len(dumps({"disclosures": made.disclosures})) if made.disclosures else 0
        self.assertLessEqual(len(made.payload), bound.payload)
        self.assertLessEqual(salts, bound.salts)
        self.assertLessEqual(len(b64u_encode(made.payload)) + salts + BATCH_ROOM, bound.envelope(0))
        return bound.payload - len(made.payload)

    @given(
        st.integers(200, 4000),
        st.integers(8, 60),
        st.sampled_from([Redaction(), Redaction.of(["x"], query=True), Redaction.of(["x" * 60])]),
        TARGETS,
        st.tuples(FIELDS, FIELDS),
        st.tuples(FIELDS, FIELDS),
    )
    @example(4000, 60, Redaction.of(["x"]), b"/", ([(b"x", b"")] * 28, [(b"x", b"")] * 30), ([], []))
    def test_no_larger(
        self,
        head: int,
        fields: int,
        redaction: Redaction,
        target: bytes,
        asked: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]],
        answered: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]],
    ) -> None:
        """Whatever head and trailers the limits let pass, the record is no larger than computed."""
        limits = MessageLimits(head=head, fields=fields)
        # Those that do not fit are cut, so that many do.
        half = max(0, fields // 2 - 2)
        shorter = tuple(each[:half] for each in asked), tuple(each[:half] for each in answered)
        for sides in ((asked, answered), shorter):
            self.check(RecordBound(head, fields, redaction), draft(limits, redaction, target, *sides))  # type: ignore[arg-type]

    def test_worst(self) -> None:
        """At the limits, with digests for all values that can be redacted, it is nearly as large as computed."""
        for redaction, name in ((Redaction(), b"cookie"), (Redaction.of(["x"], query=True), b"x")):
            bound = RecordBound(32768, 100, redaction)
            fields = worst(name, b"", 97, 32768 - 120)
            response = worst(name, b"", 98, 32768 - 80)
            target = b"/?q" if redaction.query else b"/"
            made = draft(MessageLimits(32768, 100), redaction, target, (fields, []), (response, []))
            self.assertIsNotNone(made)
            self.assertLess(self.check(bound, made), 3000)
            trailers = draft(MessageLimits(32768, 100), redaction, target, ([], fields), ([], response))
            self.assertIsNotNone(trailers)
            self.assertLess(self.check(bound, trailers), 3000)

    def test_defaults(self) -> None:
        """The default limits fit with room for signatures, also with the shortest redacted name and the query."""
        self.assertTrue(RecordBound(32 * 1024, 100).fits)
        self.assertTrue(RecordBound(32 * 1024, 100, Redaction.of(["x"], query=True)).fits)

    def test_largest(self) -> None:
        """The largest value fits, and one more does not."""
        for bound in (RecordBound(2**20, 100), RecordBound(2**20, 8), RecordBound(2**20, 1000, Redaction.of(["x"]))):
            head = largest_limit("head", bound)
            self.assertTrue(replace(bound, head=head).fits)
            self.assertFalse(replace(bound, head=head + 1).fits)
        fields = largest_limit("fields", RecordBound(32768, 1000))
        self.assertTrue(RecordBound(32768, fields).fits)
        self.assertFalse(RecordBound(32768, fields + 1).fits)
        self.assertEqual(largest_limit("fields", RecordBound(2**20, 100)), 0)

    def test_longer_chains(self) -> None:
        """With longer chains than usual the size of a request decides, to the octet."""
        bound = RecordBound(32768, 100)
        self.assertTrue(bound.admits(32768, SIGNATURES_ROOM))
        room = MAX_ENVELOPE - bound.envelope(0, spared=32768 - 4096)
        self.assertGreater(room, SIGNATURES_ROOM)
        self.assertTrue(bound.admits(4096, room))
        self.assertFalse(bound.admits(4096 + 2, room))
        self.assertFalse(bound.admits(4096, room + 1))
