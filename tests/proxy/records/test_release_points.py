"""The release points of a recorded exchange: what the client has received and the store holds at each."""

from __future__ import annotations

import inspect

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy import tap
from svc.proxy.assembly import Assembly
from svc.proxy.records.release_points import ReleasePoint, unobserved
from svc.store.errors import StoreUnavailable
from tests.proxy.rig import CALLER, Rig
from tests.proxy.test_notarization import NONCE, OK, get

NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n" + b"x" * 20_000 + b"\r\n0\r\n\r\n"


class ReleasePointTests(SynchronousTestCase):
    """Each release point records how many octets the client has and whether the record is durable."""

    def setUp(self) -> None:
        """Create a listener whose release points are observed."""
        self.rig = Rig(released=self._note)
        self.client, self.wire = self.rig.client()
        self.seen: list[tuple[str, int, bool]] = []

    def _note(self, step: ReleasePoint) -> None:
        durable = self.successResultOf(self.rig.store.nonce_known(str(CALLER.spiffe_id), NONCE.decode()))
        self.seen.append((step.value, len(self.wire.value()), durable))

    def ask(self, level: str, answer: bytes, method: bytes = b"GET") -> int:
        """Run one exchange; return the length of its response."""
        self.client.dataReceived(get(level, NONCE, method=method))
        self.rig.respond(answer)
        return len(self.wire.value())

    def test_body(self) -> None:
        """Only the end of the body is withheld until the record is durable: signed or not, by length or chunked."""
        for level in ("signRequest", "logRequest"):
            for answer, held in ((LARGE, 1), (CHUNKED, 5)):
                self.setUp()
                whole = self.ask(level, answer)
                self.assertEqual(
                    [
                        ("receipt.signed", whole - held, False),
                        ("receipt.committed", whole - held, True),
                        ("last-byte.written", whole, True),
                    ],
                    self.seen,
                )

    def test_withheld_as_a_whole(self) -> None:
        """Of a response that is small, or has no body, nothing is sent until the record is durable."""
        for answer, method in ((NO_BODY, b"GET"), (OK[:-2], b"HEAD"), (OK, b"GET")):
            self.setUp()
            whole = self.ask("signRequest", answer, method)
            self.assertEqual(
                [
                    ("head.withheld", 0, False),
                    ("receipt.signed", 0, False),
                    ("receipt.committed", 0, True),
                    ("last-byte.written", whole, True),
                ],
                self.seen,
            )

    def test_not_recorded(self) -> None:
        """An exchange without a record has no release points."""
        self.ask("workload", OK)
        self.assertEqual([], self.seen)

    def test_not_committed(self) -> None:
        """If the store refuses the record, the exchange stops after the signature, and so does the response."""
        self.rig.store.failure = StoreUnavailable(path="notary.db", detail="disk full")
        self.ask("signRequest", LARGE)
        self.assertEqual(["receipt.signed"], [name for name, _octets, _durable in self.seen])
        self.assertTrue(self.wire.aborted)


class ProductionTests(SynchronousTestCase):
    """The release points of ``twistd svc-proxy``."""

    def test_no_observer(self) -> None:
        """The plugin builds the proxy without an observer, and no option can set one."""
        self.assertIs(unobserved, inspect.signature(Assembly).parameters["released"].default)
        self.assertNotIn("released", inspect.getsource(tap))
