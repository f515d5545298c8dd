"""The receipts on the web page of ``adminAddr``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from svc.envelope.profile import Profile
from svc.identity import BundleSet
from svc.notary.level import Level
from svc.pages.elements import Code, Link, Table
from svc.proxy.records.receipt_pages import ReceiptPages, ReceiptResource, is_loopback
from svc.settings import HostPort
from svc.store.errors import StoreClosed
from svc.store.records import FoundReceipts, ReceiptQuery
from svc.workload.errors import PqFileMissing
from tests.proxy.mqtt.records import RecordRig, begun, completed, puback, publish
from tests.proxy.rig import AUTHORITY, CALLER, OWN, Rig
from tests.proxy.test_notarization import NONCE, OK, get

LOOPBACK = HostPort("127.0.0.1", 9902)


class ReceiptPagesTests(SynchronousTestCase):
    """A proxy that has recorded exchanges."""

    def setUp(self) -> None:
        self.rig = Rig()
        self.rig.rotation.bundles = AUTHORITY.bundles()
        self.client, self.wire = self.rig.client()
        self.pages = self.made()

    def made(self, address: HostPort | None = LOOPBACK) -> ReceiptPages:
        """Make the pages for an address."""
        rig: Any = self.rig
        return ReceiptPages(
            rig.store,
            rig.rotation,
            profile=Profile.CLASSICAL,
            pq_bundles=lambda: None,
            address=address,
            clock=rig.clock,
            now=rig.wall,
        )

    def record(self, level: str = "signRequest", nonce: bytes | None = NONCE, path: bytes = b"/a") -> None:
        """Record an exchange."""
        self.client.dataReceived(get(level, nonce).replace(b"/a", path, 1))
        self.rig.respond(OK)

    def table(self, pages: ReceiptPages | None = None) -> Table:
        """Return the only table."""
        [table] = self.successResultOf(Deferred.fromCoroutine((pages or self.pages).tables()))
        return table

    def report(self, path: str, pages: ReceiptPages | None = None) -> tuple[int, str]:
        """Request a page below ``/receipts``; returns its status, 200 where none is set, and its text."""
        request = DummyRequest([b"receipts"])
        request.postpath = [each.encode() for each in path.split("/")]
        request.setResponseCode = lambda code: setattr(request, "responseCode", code)  # type: ignore[assignment, misc]
        ReceiptResource(pages or self.pages).render(request)
        return request.responseCode or 200, b"".join(request.written).decode()

    def link(self) -> str:
        """Return the id that the newest row links to."""
        link = self.table().rows[0][-1]
        assert isinstance(link, Link)
        return link.href.removeprefix("/receipts/")

    def test_list(self) -> None:
        """Each record is a row, with its report one link away; the newest is first."""
        self.assertEqual("None.", self.table().note)
        self.record()
        self.rig.clock.advance(2)
        self.record("logRequest", None)
        logged, signed = self.table().rows
        self.assertEqual(
            ("2026-11-21 12:00:00", Code(str(CALLER.spiffe_id)), "GET", Code("/a"), "200", "complete"),
            tuple(signed[:-1]),
        )
        self.assertEqual(["Show", "Verify"], [row[-1].text for row in (logged, signed)])

    def test_long_path(self) -> None:
        """Of a long path the beginning is shown, which leaves room for the other columns; its report has all of it."""
        for length, shown in ((120, f"/{'a' * 119}"), (121, f"/{'a' * 118}…")):
            path = f"/{'a' * (length - 1)}"
            self.record("logRequest", None, path.encode())
            self.assertEqual(Code(shown), self.table().rows[0][3])
            self.assertIn(path, self.report(self.link())[1])
            self.rig.clock.advance(2)

    def test_message(self) -> None:
        """A message of MQTT has packet, topic and reason code in place of method, path and status."""
        rig = RecordRig()
        rig.store = rig.notarizer._store = self.rig.store  # type: ignore[assignment]
        recorder = rig.recorder(credentials=lambda: self.rig.credentials)
        for level, link in ((Level.SIGN_REQUEST, "Verify"), (Level.LOG_REQUEST, "Show")):
            completed(recorder, begun(recorder, publish(), level=level), puback())
            cells = next(row for row in self.table().rows if isinstance(row[-1], Link) and row[-1].text == link)
            self.assertEqual(("PUBLISH", Code("meters/1/power"), "0x00", "complete"), tuple(cells[2:6]))
            assert isinstance(cells[-1], Link)
            status, page = self.report(cells[-1].href.removeprefix("/receipts/"))
            self.assertEqual((200, True), (status, "meters/1/power" in page))
            self.assertEqual(level is Level.SIGN_REQUEST, "Verified" in page)

    def test_verified(self) -> None:
        """A receipt is verified at its own time under the roots in force."""
        self.record()
        status, page = self.report(self.link())
        self.assertEqual((200, True, True), (status, "Verified" in page, str(OWN.spiffe_id) in page))

    def test_verified_in_a_batch(self) -> None:
        """Receipts that were signed together are verified each by itself."""
        self.rig.store.hold = True
        self.record()
        other, _wire = self.rig.client()
        other.dataReceived(get("signRequest"))
        self.rig.respond(OK)
        self.rig.store.release()
        links = [row[-1] for row in self.table().rows]
        self.assertEqual(2, len(links))
        for link in links:
            assert isinstance(link, Link)
            status, page = self.report(link.href.removeprefix("/receipts/"))
            self.assertEqual(("Verify", 200, True, False), (link.text, status, "Verified" in page, "Not ver" in page))

    def test_roots_have_changed(self) -> None:
        """A receipt that the roots in force do not verify is shown with what fails."""
        self.record()
        self.rig.rotation.bundles = BundleSet()
        status, page = self.report(self.link())
        self.assertEqual((200, True), (status, "Not verified" in page))
        self.assertIn("no_anchor", page)

    def test_roots_cannot_be_read(self) -> None:
        """A file with post-quantum roots that cannot be read is named, and nothing is verified without it."""
        self.record()

        def unreadable() -> None:
            raise PqFileMissing(path="/pq-bundle.json")

        self.pages._pq_bundles = unreadable
        status, page = self.report(self.link())
        self.assertEqual((200, True, True), (status, "Not verified" in page, "/pq-bundle.json" in page))

    def test_statement_is_gone(self) -> None:
        """A receipt whose statement is not stored any more says so."""
        self.record()
        link = self.link()
        self.rig.rotation.credentials = None
        self.assertIn("is not stored", self.report(link)[1])

    def test_unsigned_record(self) -> None:
        """A record without signature is shown, and not as verified."""
        self.record("logRequest", None)
        status, page = self.report(self.link())
        self.assertEqual((200, True), (status, "not verified" in page))

    def test_other_paths(self) -> None:
        """What is no id, and an id of nothing, are answered with 404."""
        for path in ("", "x", "A" * 43, "A" * 43 + "/x", "\x00", "<script>"):
            status, page = self.report(path)
            self.assertEqual((404, False), (status, "<script" in page), path)

    def test_not_on_loopback(self) -> None:
        """Where others than users of this machine reach adminAddr, no receipt is shown, and the page says why."""
        self.record()
        link = self.link()
        for address in (HostPort("", 9902), HostPort("0.0.0.0", 9902), HostPort("192.0.2.1", 1), None):
            pages = self.made(address)
            table = self.table(pages)
            self.assertEqual(([], True), (list(table.rows), "loopback" in table.note), address)
            self.assertEqual(403, self.report(link, pages)[0])

    def test_loopback(self) -> None:
        """Loopback is all of 127.0.0.0/8, ::1 and localhost."""
        for host, expected in (
            ("127.0.0.9", True),
            ("::1", True),
            ("localhost", True),
            ("", False),
            ("a.example", False),
        ):
            self.assertEqual(expected, is_loopback(host), host)

    def test_database_in_trouble(self) -> None:
        """The page is there while the database fails or says nothing."""
        self.record()
        link = self.link()
        store: Any = self.rig.store
        store.find = store.get_receipt = lambda _query: fail(StoreClosed())
        self.assertIn("cannot be read", self.table().note)
        self.assertEqual(503, self.report(link)[0])
        store.find = store.get_receipt = lambda _query: Deferred()
        waiting = Deferred.fromCoroutine(self.pages.tables())
        self.assertNoResult(waiting)
        self.rig.clock.advance(2.0)
        [table] = self.successResultOf(waiting)
        self.assertIn("did not answer within 2 s", table.note)
        self.assertEqual([], self.rig.clock.getDelayedCalls())

    def test_altered_record(self) -> None:
        """A record whose payload cannot be read is a row of what its columns say."""
        self.record()
        store: Any = self.rig.store
        [found] = self.successResultOf(store.find(ReceiptQuery()))
        store.find = lambda _query: succeed(FoundReceipts([replace(found, payload=b'{"svc":')]))
        [row] = self.table().rows
        self.assertEqual((Code(str(CALLER.spiffe_id)), None, None, None, "complete"), tuple(row[1:-1]))

    def test_bound(self) -> None:
        """Twenty receipts are shown at most."""
        for number in range(22):
            self.rig.clock.advance(timedelta(seconds=1).total_seconds())
            self.record(nonce=b"%02d" % number + b"A" * 20)
        self.assertEqual(20, len(self.table().rows))
