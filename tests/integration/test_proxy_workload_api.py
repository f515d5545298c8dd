"""
A Workload API that sends invalid updates, hangs, alternates or is replaced: the proxy keeps serving, logs it, and
recovers.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from spiffe._proto import workload_pb2
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.testing.ca import TestAuthority, key_der
from tests.peers import webapp
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.scripted_workload_api import ScriptedWorkloadApi, bundle_der
from tests.peers.waiting import eventually

PATH = "/ns/shop/sa/api"


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack)
        self.scripted = self.start_scripted()

    def start_scripted(self, authority: TestAuthority | None = None) -> ScriptedWorkloadApi:
        """Start a Workload API, in place of the one that is there."""
        return ScriptedWorkloadApi(self.stack, self.folder / "api.sock", authority)

    def svid(self, *, life: timedelta = timedelta(hours=1), path: str = PATH) -> X509Svid:
        """Make an SVID."""
        now = datetime.now(UTC)
        return self.scripted.authority.svid(path, not_before=now - timedelta(seconds=1), not_after=now + life)

    def start_proxy(self, first: X509Svid) -> RunningProxy:
        """Start a proxy that gets an SVID first."""
        self.scripted.say(self.scripted.message(first))
        proxy = RunningProxy(self.scripted, f"127.0.0.1:{webapp.start(self.stack)}", notary={"profile": "classical"})  # type: ignore[arg-type]
        del proxy.config["notary"]["pqIssuer"]
        return self.stack.enter_context(proxy)

    def client(self, name: str = "client") -> ssl.SSLContext:
        """Make a client that trusts the authority."""
        roots = self.folder / f"{name}.roots"
        roots.write_bytes(
            b"".join(each.certificate.public_bytes(Encoding.PEM) for each in self.scripted.authority.bundle().anchors)
        )
        return Credentials.of(self.svid(path="/ns/shop/sa/web"), self.folder / name, roots).context()

    def presented(self, proxy: RunningProxy, context: ssl.SSLContext) -> int:
        """Send a request on a new connection; return the serial number of the SVID that responded."""
        with RawConnection(proxy.port, context) as connection:
            self.assertEqual(200, connection.request("/bytes/10").status)
            tls: Any = connection.socket
            der = tls.getpeercert(binary_form=True)
        return int(x509.load_der_x509_certificate(der).serial_number)


class InvalidUpdateTests(_Case):
    """The Workload API sends invalid updates."""

    def invalid_updates(self) -> Iterator[tuple[str, str, bytes | Any]]:
        """Yield the event, a word of the detail, and the message."""
        now, rejected, stale = datetime.now(UTC), "svc.workload.update.rejected", "svc.workload.source.stale"
        message, authority = self.scripted.message, self.scripted.authority
        past = authority.svid(PATH, not_before=now - timedelta(hours=2), not_after=now - timedelta(hours=1))
        future = authority.svid(PATH, not_before=now + timedelta(hours=1), not_after=now + timedelta(hours=2))
        yield rejected, "expired", message(past)
        yield rejected, "valid", message(future)
        stolen = message(self.svid())
        stolen.svids[0].x509_svid_key = key_der(self.svid())
        yield rejected, "key", stolen
        yield rejected, "bundle", message(self.svid(), bundle=b"")
        other = TestAuthority("example.org", now=now)
        yield rejected, "", message(self.svid(), bundle=bundle_der(other.bundle()))
        misnamed = message(self.svid())
        misnamed.svids[0].spiffe_id = "spiffe://example.org/ns/shop/sa/other"
        yield rejected, "names", misnamed
        garbled = message(self.svid())
        garbled.svids[0].x509_svid = b"\x30\x82\x01"
        yield rejected, "", garbled
        yield rejected, "no", workload_pb2.X509SVIDResponse()
        foreign = TestAuthority("other.example", now=now)
        yield rejected, "other.example", message(foreign.svid(PATH), bundle=bundle_der(foreign.bundle()))
        yield stale, "", b"\xff\xff\xff this is no message"
        yield stale, "RESOURCE_EXHAUSTED", message(self.svid(), bundle=b"\x30" * (5 * 1024 * 1024))

    def send_valid_update(self, proxy: RunningProxy, svid: X509Svid) -> None:
        """Send a valid update if the last one was invalid, and wait until it is used."""
        failures = ("svc.workload.source.stale", "svc.workload.update.rejected")
        logged = [each["event"]["name"] for each in proxy.records()]
        last = max((position for position, name in enumerate(logged) if name in failures), default=-1)
        if last >= 0:
            self.scripted.say(self.scripted.message(svid))
            eventually(
                lambda: "svc.workload.source.connected" in [each["event"]["name"] for each in proxy.records()[last:]],
                60,
                "the valid update",
            )

    def test_every_invalid_update(self) -> None:
        """
        Old and new connections are served with the last good SVID, each invalid update is logged, and the next valid
        one is used.
        """
        first, second = self.svid(), self.svid(life=timedelta(hours=2))
        proxy = self.start_proxy(first)
        context = self.client()
        kept = RawConnection(proxy.port, context)
        self.addCleanup(kept.close)
        not_after = proxy.metric("svc_proxy_svid_not_after_seconds")
        for event, word, lie in self.invalid_updates():
            # An outage is logged where there was none before.
            self.send_valid_update(proxy, first)
            before = len(proxy.records(event))
            self.scripted.say(lie)
            eventually(lambda event=event, before=before: len(proxy.records(event)) > before, 60, f"{event} {word}")
            self.assertIn(word, proxy.records(event)[-1]["detail"])
            self.assertEqual(200, kept.request("/bytes/10").status)
            self.assertEqual(first.leaf.serial_number, self.presented(proxy, context), word)
            self.assertTrue(proxy.is_ready(), word)
        self.assertEqual(not_after, proxy.metric("svc_proxy_svid_not_after_seconds"))
        self.scripted.say(self.scripted.message(second))
        eventually(lambda: self.presented(proxy, context) == second.leaf.serial_number, 60, "the truth")
        self.assertEqual(200, kept.request("/bytes/10").status)
        self.assertGreater(proxy.metric("svc_proxy_svid_not_after_seconds"), not_after)
        self.assertEqual([], proxy.records("svc.runtime.failure"))


class FlappingTests(_Case):
    """The Workload API changes the SVID a hundred times a second."""

    def test_flapping(self) -> None:
        """Every request is served, few credential sets are made, and the last SVID is used."""
        one, two = self.svid(), self.svid(life=timedelta(hours=2))
        proxy = self.start_proxy(one)
        context, messages = self.client(), [self.scripted.message(each).SerializeToString() for each in (two, one)]
        began, busy = time.monotonic(), cpu(proxy)
        for number in range(300):
            self.scripted.say(messages[number % 2])
            if number % 20 == 0:
                self.presented(proxy, context)
            time.sleep(max(0.0, began + number / 100 - time.monotonic()))
        seconds = time.monotonic() - began
        self.assertLess(cpu(proxy) - busy, seconds * 0.7)
        self.scripted.say(messages[0])
        eventually(lambda: self.presented(proxy, context) == two.leaf.serial_number, 60, "the last word")
        issued = len(proxy.records("svc.notary.generation.issued"))
        self.assertLess(issued, 5 + seconds + 5)
        self.assertTrue(proxy.is_ready())


class HungTests(_Case):
    """The Workload API responds once and never again, and is replaced at the same path."""

    def test_hung_and_replaced(self) -> None:
        """A stream that stays open and silent is given up in time, and the new socket is found behind the path."""
        short = timedelta(seconds=18)
        first = self.svid(life=short)
        proxy = self.start_proxy(first)
        hung, context, old_inode = self.scripted, self.client(), Path(self.folder / "api.sock").stat().st_ino
        hung.silent = True
        self.assertEqual(first.leaf.serial_number, self.presented(proxy, context))
        self.scripted = self.start_scripted()
        self.assertNotEqual(old_inode, Path(self.folder / "api.sock").stat().st_ino)
        second = self.svid()
        self.scripted.say(self.scripted.message(second))
        clients = self.client("newer")

        def found() -> bool:
            # The old roots serve until the new ones are there; in between the one or the other client is refused.
            try:
                return self.presented(proxy, clients) == second.leaf.serial_number
            except OSError:
                return False

        eventually(found, 60, "the SVID of the new authority")
        self.assertLess(datetime.now(UTC), first.not_after + timedelta(seconds=1))
        self.assertTrue(proxy.is_ready())
        self.assertEqual(1, hung.calls)
        # The proxy itself made the call anew: that is no outage.
        self.assertEqual([], proxy.records("svc.workload.source.stale"))
        with self.assertRaises(OSError):
            self.presented(proxy, context)


def cpu(proxy: RunningProxy) -> float:
    """
    Measure the work of a proxy.

    Args:
        proxy: a running one.

    Returns:
        Seconds of processor time since its start.
    """
    assert proxy.process is not None
    words = Path(f"/proc/{proxy.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100
