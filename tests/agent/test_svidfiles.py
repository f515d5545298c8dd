"""The files of an SVID: what is written, when, and what is said where they may be old."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock

from svc.agent.config import FilesSettings
from svc.agent.notifying import NotifyFailed, ProgramNotRunning
from svc.agent.svidfiles import SvidFiles
from svc.agent.versions import FilesUnwritable, VersionedFolder
from svc.errors import SvcError
from svc.identity.algorithms import spki_der
from svc.identity.bundle import BundleSet
from svc.identity.svid import X509Svid
from svc.notary.pqleaf import PqLeaf
from svc.telemetry.events.agent import AgentEvent
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.workload.errors import NoOwnSvid, PqFileMissing, PqIssuerError
from tests.peers.folders import short_folder
from tests.proxy.parts import LogTestCase

NOW = datetime(2026, 11, 21, tzinfo=UTC)
AUTHORITY = TestAuthority("example.org", now=NOW)
FOREIGN = TestAuthority("foreign.example", now=NOW)
AWAY = PqIssuerError("pq_issuer_timeout", address="x:1", seconds=1)


class HintedSource(MemorySource):
    """A source with further SVIDs that have hints."""

    def __init__(self) -> None:
        super().__init__()
        self.hinted: dict[str, X509Svid] = {}

    def select(self, hint: str | None) -> X509Svid:
        default = self.svid
        if hint is None:
            return default
        if hint not in self.hinted:
            raise NoOwnSvid(defect=f"none has the hint {hint!r}")
        return self.hinted[hint]


class FullDisk(VersionedFolder):
    """A folder whose disk can be full."""

    full = False
    written = 0

    def write(self, files: Any) -> str:
        if self.full:
            raise FilesUnwritable(folder=self.path, why=os.strerror(errno.ENOSPC))
        self.written += 1
        return super().write(files)


class FilesCase(LogTestCase):
    """One entry and its folder."""

    def setUp(self) -> None:
        """Make them; a test starts the entry."""
        super().setUp()
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.path = short_folder(stack) / "web"
        self.folder = FullDisk(str(self.path))
        self.clock = Clock()
        self.source = HintedSource()
        self.states: list[str] = []
        self.notified = 0
        self.not_notified: SvcError | None = None
        self.asked: list[X509Svid] = []
        self.no_leaf: SvcError | None = None
        self.leaves: list[Deferred[PqLeaf]] | None = None
        self.pq_bundle: bytes | SvcError = b"{}"

    def begin(self, **keys: Any) -> None:
        """Start the entry."""
        settings = FilesSettings.model_validate({"folder": str(self.path), "command": ["/bin/true"], **keys})
        self.files = SvidFiles(
            settings,
            self.source,
            self.folder,
            obtain_leaf=None if settings.pqIssuer is None else self.obtain,
            pq_bundle=None if settings.pqBundle is None else self.read_pq_bundle,
            notify=self.notify,
            in_thread=lambda call, *arguments: maybeDeferred(call, *arguments),
            clock=self.clock,
            now=self.now,
            report=lambda error: self.states.append("" if error is None else error.reason),
        )
        self.files.startService()
        self.addCleanup(self.files.stopService)

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock.seconds())

    def notify(self) -> Deferred[None]:
        self.notified += 1
        return succeed(None) if self.not_notified is None else fail(self.not_notified)

    def obtain(self, svid: X509Svid) -> Deferred[PqLeaf]:
        """A leaf at once, an error, or a leaf when the test gives it."""
        self.asked.append(svid)
        if self.leaves is not None:
            self.leaves.append(Deferred())
            return self.leaves[-1]
        return succeed(self.leaf(svid)) if self.no_leaf is None else fail(self.no_leaf)

    def leaf(self, svid: X509Svid) -> PqLeaf:
        chain, key = AUTHORITY.pq_leaf(svid)
        return PqLeaf(chain, key, svid.not_after)  # type: ignore[arg-type]

    def read_pq_bundle(self) -> bytes:
        if isinstance(self.pq_bundle, SvcError):
            raise self.pq_bundle
        return self.pq_bundle

    def rotate(self, svid: X509Svid | None = None, bundles: BundleSet | None = None, seconds: float = 1.0) -> None:
        """Let the Workload API give something, and time pass."""
        self.source.rotate(svid, bundles)
        self.clock.advance(seconds)

    def written(self, chain: str = "svid.pem", key: str = "svid_key.pem") -> int:
        """The serial number of the certificate, whose key it is."""
        [leaf, *_above] = x509.load_pem_x509_certificates((self.path / chain).read_bytes())
        private: Any = load_pem_private_key((self.path / key).read_bytes(), None)
        self.assertEqual(spki_der(leaf.public_key()), spki_der(private.public_key()))
        return leaf.serial_number

    def roots(self, name: str) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates((self.path / name).read_bytes())


class RenewalTests(FilesCase):
    """What is written of what the Workload API gives."""

    def test_first(self) -> None:
        """Nothing before the first SVID; then all files, and the program is told."""
        self.begin()
        self.assertEqual((False, ["credentials_missing"], 0), (self.path.exists(), self.states, self.notified))
        self.clock.advance(1.0)
        svid = AUTHORITY.svid("/a")
        self.rotate(svid, AUTHORITY.bundles())
        self.assertEqual(svid.leaf.serial_number, self.written())
        self.assertEqual([AUTHORITY.certificate], self.roots("svid_bundle.pem"))
        self.assertEqual(0o600, (self.path / "svid_key.pem").stat().st_mode & 0o777)
        self.assertEqual(("", 1), (self.states[-1], self.notified))
        written = self.only(AgentEvent.FILES_WRITTEN)
        self.assertEqual(f"{svid.leaf.serial_number:x}", written.attributes["serial"])
        self.assertEqual("spiffe://example.org/a", written.fields["spiffe_id"])
        self.assertEqual(1, len(self.of(AgentEvent.FILES_NOTIFIED)))
        self.assertEqual([], self.of(AgentEvent.FILES_FAILED))

    def test_intermediates(self) -> None:
        """The chain has the intermediates behind the SVID."""
        self.source.rotate(svid := AUTHORITY.intermediate().svid("/a"), AUTHORITY.bundles())
        self.begin(mode="0640", svid="tls.crt", key="tls.key")
        self.assertEqual(list(svid.chain), self.roots("tls.crt"))
        self.assertEqual(2, len(svid.chain))
        self.assertEqual(0o640, (self.path / "tls.key").stat().st_mode & 0o777)

    def test_next(self) -> None:
        """A new SVID or bundle is written; what is equal is not, and nobody is told."""
        self.source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        self.begin()
        self.rotate()
        self.clock.advance(60.0)
        self.assertEqual((1, 1), (self.folder.written, self.notified))
        second = AUTHORITY.svid("/a")
        self.rotate(second)
        self.assertEqual((2, 2, second.leaf.serial_number), (self.folder.written, self.notified, self.written()))
        bundles = BundleSet.of(AUTHORITY.bundle(), FOREIGN.bundle())
        self.rotate(bundles=bundles)
        self.assertEqual((3, 3), (self.folder.written, self.notified))

    def test_hint(self) -> None:
        """The SVID with the hint is written; where none has it, the files stay and the reason is said."""
        other = self.source.hinted["b"] = AUTHORITY.svid("/b")
        self.source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        self.begin(hint="b")
        self.assertEqual(other.leaf.serial_number, self.written())
        self.source.hinted.clear()
        self.rotate()
        self.assertEqual(("no_own_svid", other.leaf.serial_number), (self.states[-1], self.written()))
        self.assertIn("'b'", self.only(AgentEvent.FILES_FAILED).fields["detail"])

    def test_federated(self) -> None:
        """Roots of other trust domains are files of their own, and go when the domain does."""
        self.source.rotate(AUTHORITY.svid("/a"), BundleSet.of(AUTHORITY.bundle(), FOREIGN.bundle()))
        self.begin(federated="others")
        self.assertEqual(["foreign.example.pem"], os.listdir(self.path / "others"))
        self.assertEqual([FOREIGN.certificate], self.roots("others/foreign.example.pem"))
        self.assertEqual([AUTHORITY.certificate], self.roots("svid_bundle.pem"))
        self.rotate(bundles=AUTHORITY.bundles())
        self.assertFalse((self.path / "others").exists())

    def test_often(self) -> None:
        """Of what arrives within a second the last is written, once."""
        self.source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        self.begin()
        for _number in range(20):
            self.source.rotate(AUTHORITY.svid("/a"))
        self.assertEqual(1, self.folder.written)
        self.clock.advance(1.0)
        self.assertEqual((2, self.source.svid.leaf.serial_number), (self.folder.written, self.written()))

    def test_removed(self) -> None:
        """Files that somebody removes are there again after ten seconds, and the program is told."""
        self.source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        self.begin()
        shutil.rmtree(self.path)
        self.clock.advance(10.0)
        self.assertEqual((self.source.svid.leaf.serial_number, 2), (self.written(), self.notified))

    def test_stop(self) -> None:
        """After the end nothing is written, and the files stay."""
        self.source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        self.begin()
        self.files.stopService()
        self.rotate(AUTHORITY.svid("/a"), seconds=60.0)
        self.assertEqual(1, self.folder.written)
        self.assertTrue((self.path / "svid.pem").exists())
        self.assertEqual([], self.clock.getDelayedCalls())


class PostQuantumTests(FilesCase):
    """Leaf and roots."""

    def setUp(self) -> None:
        """Give it an SVID."""
        super().setUp()
        self.first = AUTHORITY.svid("/a")
        self.source.rotate(self.first, AUTHORITY.bundles())

    def test_leaf(self) -> None:
        """There is one leaf for each SVID, beside it."""
        self.begin(pqIssuer="unix:///x")
        first = self.written("pq_svid.pem", "pq_svid_key.pem")
        self.assertEqual(0o600, (self.path / "pq_svid_key.pem").stat().st_mode & 0o777)
        self.rotate(bundles=BundleSet.of(AUTHORITY.bundle(), FOREIGN.bundle()))
        self.assertEqual(([self.first], first), (self.asked, self.written("pq_svid.pem", "pq_svid_key.pem")))
        self.rotate(second := AUTHORITY.svid("/a"))
        self.assertEqual([self.first, second], self.asked)
        self.assertNotEqual(first, self.written("pq_svid.pem", "pq_svid_key.pem"))

    def test_no_leaf(self) -> None:
        """Without a leaf the files of before stay; it is asked for again after 1, 2, 4 … 30 s, and said once."""
        self.begin(pqIssuer="unix:///x")
        self.no_leaf = AWAY
        self.rotate(second := AUTHORITY.svid("/a"), seconds=1.0)
        self.assertEqual((self.first.leaf.serial_number, "pq_issuer_timeout"), (self.written(), self.states[-1]))
        begins = []
        for second_number in range(100):
            before = len(self.asked)
            self.clock.advance(1.0)
            begins += [second_number + 1] * (len(self.asked) - before)
        self.assertEqual([1, 3, 7, 15, 31, 61, 91], begins)
        self.assertEqual(1, len(self.of(AgentEvent.FILES_FAILED)))
        self.no_leaf = None
        self.clock.advance(30.0)
        self.assertEqual((second.leaf.serial_number, ""), (self.written(), self.states[-1]))

    def test_meanwhile(self) -> None:
        """An SVID that is replaced while its leaf is on the way is not written, nor one that is withdrawn."""
        self.leaves = []
        self.begin(pqIssuer="unix:///x")
        self.source.rotate(second := AUTHORITY.svid("/a"))
        self.leaves[0].callback(self.leaf(self.first))
        self.leaves[1].callback(self.leaf(second))
        self.assertEqual((second.leaf.serial_number, 1), (self.written(), self.folder.written))
        self.rotate(third := AUTHORITY.svid("/a"))
        self.source.withdraw()
        self.leaves[2].callback(self.leaf(third))
        self.assertEqual((second.leaf.serial_number, "identity_withdrawn"), (self.written(), self.states[-1]))

    def test_stop(self) -> None:
        """A request under way ends with the service."""
        self.leaves = []
        self.begin(pqIssuer="unix:///x")
        self.files.stopService()
        self.assertEqual(([], False), (self.states, self.path.exists()))

    def test_roots(self) -> None:
        """The post-quantum roots are a file of each version; without them nothing is written."""
        self.pq_bundle = PqFileMissing(path="/x")
        self.begin(pqBundle="pq-bundle.json")
        self.assertEqual((["pq_bundle_missing"], False), (self.states, self.path.exists()))
        self.pq_bundle = b'{"v": 1}'
        self.files.look()
        self.clock.advance(1.0)
        self.assertEqual(b'{"v": 1}', (self.path / "pq-bundle.json").read_bytes())
        self.pq_bundle = b'{"v": 2}'
        self.files.look()
        self.clock.advance(1.0)
        self.assertEqual((b'{"v": 2}', 2), ((self.path / "pq-bundle.json").read_bytes(), self.notified))


class FailureTests(FilesCase):
    """What stays, and what is said."""

    def setUp(self) -> None:
        """Give it an SVID."""
        super().setUp()
        self.first = AUTHORITY.svid("/a")
        self.source.rotate(self.first, AUTHORITY.bundles())

    def test_full_disk(self) -> None:
        """The files of before stay, and the next attempt follows; another failure is said again."""
        self.begin()
        self.folder.full = True
        self.rotate(second := AUTHORITY.svid("/a"))
        self.clock.advance(10.0)
        self.assertEqual((self.first.leaf.serial_number, "files_unwritable"), (self.written(), self.states[-1]))
        self.assertIn("No space left", self.only(AgentEvent.FILES_FAILED).fields["detail"])
        self.folder.full = False
        self.clock.advance(30.0)
        self.assertEqual((second.leaf.serial_number, ""), (self.written(), self.states[-1]))
        self.folder.full = True
        self.rotate(AUTHORITY.svid("/a"))
        self.assertEqual(2, len(self.of(AgentEvent.FILES_FAILED)))

    def test_withdrawn(self) -> None:
        """The files of a withdrawn identity stay and count as failed, until it is back."""
        self.begin()
        self.source.withdraw()
        self.clock.advance(60.0)
        self.assertEqual((self.first.leaf.serial_number, "identity_withdrawn"), (self.written(), self.states[-1]))
        self.assertEqual(1, len(self.of(AgentEvent.FILES_FAILED)))
        self.rotate(self.first)
        self.assertEqual(("", 1), (self.states[-1], self.folder.written))

    def test_expired(self) -> None:
        """Files that have expired stay, and are reported from that second on."""
        self.begin()
        self.clock.advance(3599.0)
        self.files.check()
        self.assertEqual("", self.states[-1])
        self.clock.advance(1.0)
        for _second in range(30):
            self.files.check()
            self.clock.advance(1.0)
        self.assertEqual((self.first.leaf.serial_number, "expired"), (self.written(), self.states[-1]))
        self.assertEqual(1, len(self.of(AgentEvent.FILES_FAILED)))

    def test_not_notified(self) -> None:
        """A program is told again after 1, 2, 4 … s; what is new meanwhile is written."""
        self.not_notified = NotifyFailed(program="/bin/x", why="it ended with status 1")
        self.begin()
        self.assertEqual((self.first.leaf.serial_number, "notify_failed"), (self.written(), self.states[-1]))
        self.clock.pump([1.0] * 6)
        self.assertEqual((3, 1), (self.notified, self.folder.written))
        self.assertEqual(1, len(self.of(AgentEvent.FILES_NOT_NOTIFIED)))
        self.rotate(second := AUTHORITY.svid("/a"))
        self.assertEqual((second.leaf.serial_number, 4), (self.written(), self.notified))
        self.not_notified = None
        self.clock.advance(30.0)
        self.assertEqual(("", 5), (self.states[-1], self.notified))
        self.clock.advance(60.0)
        self.assertEqual(5, self.notified)

    def test_not_running(self) -> None:
        """A program that does not run is no failure of the files, and is told when it is there."""
        self.not_notified = ProgramNotRunning(program="/run/x.pid", why="No such file or directory")
        self.begin()
        self.clock.pump([1.0] * 3)
        self.assertEqual(({""}, 3), (set(self.states), self.notified))
        self.assertEqual(1, len(self.of(AgentEvent.FILES_NOT_NOTIFIED)))
        self.clock.advance(3600.0)
        for _second in range(60):
            self.files.check()
            self.clock.advance(1.0)
        self.assertEqual("expired", self.states[-1])
        self.assertEqual(1, len(self.of(AgentEvent.FILES_FAILED)))
        self.rotate(AUTHORITY.svid("/a", ttl=timedelta(hours=2)))
        self.not_notified = None
        self.clock.advance(30.0)
        notified = self.notified
        self.clock.advance(60.0)
        self.assertEqual(("", notified), (self.states[-1], self.notified))

    def test_defect(self) -> None:
        """An unexpected error is logged and reported, and the next attempt follows."""
        self.not_notified = ValueError("x")  # type: ignore[assignment]
        self.begin()
        self.assertEqual(["internal_error"], self.states)
        self.assertEqual(1, len(self.flushLoggedErrors(ValueError)))
        self.not_notified = None
        self.clock.advance(1.0)
        self.assertEqual("", self.states[-1])
