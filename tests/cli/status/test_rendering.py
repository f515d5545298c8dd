"""Tests of svc.cli.status.rendering."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import StatusUnreachable
from svc.cli.status.addresses import AdminAddress
from svc.cli.status.document import parse_status
from svc.cli.status.rendering import GREEN, RED, YELLOW, Answer, columns, render, written
from svc.errors import printable
from tests.cli.status.documents import NOW, encoded, proxy_document

ADDRESS = AdminAddress("127.0.0.1", 9902)
PROXY = """\
svc-proxy 1.2.3  ready  127.0.0.1:9902  up 3h 12m  pid 4711  prod.example.org
  IDENTITY                                 EXPIRES  PQ LEAF  SERVES   PROFILE
  spiffe://prod.example.org/ns/pay/sa/api  in 41m   in 41m   for 40m  hybrid
  LISTENER  PROTOCOL  DIRECTION  LISTEN        UPSTREAM        LEVEL                  CONNS  PEERS  REQUESTS  REFUSED
  web       http      inbound    0.0.0.0:8443  127.0.0.1:8080  workload..signRequest      3      2     1,234        5
  rates  12.5 requests/s  0.1 refusals/s  0 errors/s  p50 4 ms  p99 1.25 s
  store  /var/lib/svc/notary.db  writable  1,200 written since the start
  refused in the last hour  policy_deny 2  svid_expired 1
  last error 3m ago, 7 times  svc.pq.leaf.failed: pq_issuer_unavailable: the issuer does not answer (spiffe://prod.example.org/issuer)
"""
NARROW = """\
svc-proxy 1.2.3  ready  127.0.0.1:9902  up 3h 12m  pid 4711…
  IDENTITY                                 EXPIRES  PQ LEAF
  spiffe://prod.example.org/ns/pay/sa/api  in 41m   in 41m
  LISTENER  LISTEN        CONNS  PEERS  REQUESTS  REFUSED
  web       0.0.0.0:8443      3      2     1,234        5
"""


def answered(address: str = str(ADDRESS), **members: Any) -> Answer:
    """The answer of a proxy with these members in its document."""
    return Answer(address, parse_status(encoded(proxy_document(**members)), ADDRESS)[0])


def shown(*answers: Answer, width: int | None = None, colour: bool = False) -> str:
    """What is printed."""
    return "".join(f"{written(line, colour=colour)}\n" for line in render(answers, width))


class RenderingTests(SynchronousTestCase):
    """:func:`render`."""

    def test_proxy(self) -> None:
        """Everything that a proxy shows, without colour."""
        self.assertEqual(PROXY, shown(answered()))

    def test_narrow(self) -> None:
        """On a narrow terminal the less important columns are left out, and what remains too long is cut."""
        self.assertTrue(shown(answered(), width=60).startswith(NARROW))
        identity = shown(answered(), width=40).splitlines()[2]
        self.assertEqual("  …e.org/ns/pay/sa/api  in 41m   in 41m", identity)

    def test_why_not_ready(self) -> None:
        """Conditions that fail come first, on as many lines as the reason needs."""
        since = "2026-11-21T11:59:30.5Z"
        failing = {"ok": False, "required": True, "since": since, "reason": "expired", "message": "it ended " * 9}
        conditions = [{**failing, "name": "credentials"}, {**failing, "name": "workloadApi", "required": False}]
        lines = shown(answered(ready=False, conditions=conditions), width=60).splitlines()
        self.assertIn("not ready", lines[0])
        self.assertEqual("  credentials fails for 29s: expired: it ended it ended it", lines[1])
        self.assertEqual("    ended it ended it ended it ended it ended it ended it", lines[2])
        coloured = shown(answered(conditions=conditions), colour=True)
        self.assertIn(f"{RED}credentials fails", coloured)
        self.assertIn(f"{YELLOW}workloadApi fails", coloured)

    def test_countdown(self) -> None:
        """The end of an identity is coloured by the share of its life that is left, else by the time that is left."""
        hour = {"notBefore": "2026-11-21T11:20:00Z", "notAfter": "2026-11-21T12:20:01Z"}
        cases = (
            (hour, f"{GREEN}in 20m 1s"),
            ({**hour, "notBefore": "2026-11-21T11:00:00Z"}, f"{YELLOW}in 20m 1s"),
            ({**hour, "notBefore": "2026-11-20T11:00:00Z"}, f"{RED}in 20m 1s"),
            ({"notAfter": "2026-11-21T12:05:01Z"}, f"{GREEN}in 5m 1s"),
            ({"notAfter": "2026-11-21T12:05:00Z"}, f"{YELLOW}in 5m"),
            ({"notAfter": "2026-11-21T12:01:00Z"}, f"{RED}in 1m"),
            ({"notAfter": NOW}, f"{RED}ended 0s ago"),
            ({"notAfter": "2026-11-19T10:00:00Z"}, f"{RED}ended 2d 2h ago"),
        )
        for times, expected in cases:
            identity = {"spiffeID": "spiffe://a/b", **times}
            self.assertIn(expected, shown(answered(identities=[identity]), colour=True), times)

    def test_broker_and_authority(self) -> None:
        """Counts that only one kind of process has; columns that no listener knows are left out."""
        mqtt = {"name": "mqtt", "protocol": "mqtt", "direction": "inbound", "listen": "[::]:8883", "connections": 7}
        broker = shown(answered(process="broker", listeners=[mqtt], clients=7, sessions=1000, retained=0, queued=2))
        self.assertIn("  LISTENER  PROTOCOL  DIRECTION  LISTEN     CONNS\n", broker)
        self.assertIn("  broker  clients 7  sessions 1,000  retained 0  queued 2\n", broker)
        roots = [
            {"kind": "x509", "notAfter": "2026-11-21T12:00:10Z", "signs": False, "algorithm": "RSA"},
            {"kind": "pq", "notAfter": "2026-11-21T12:00:20Z", "signs": True, "algorithm": "ML-DSA-65"},
        ]
        entries = [{"spiffeID": "spiffe://a/b", "svids": 2, "notAfter": "2026-11-21T12:00:30Z"}]
        issued = {"x509": 12, "jwt": 0, "pqLeaves": 3}
        nodes = [{"name": "n1", "sequence": 1200, "reported": "2026-11-21T11:59:50Z"}]
        answer = answered(process="authority", identities=[], issued=issued, roots=roots, entries=entries, nodes=nodes)
        expected = """\
  ROOT          EXPIRES  SIGNS  ALGORITHM
  X.509         in 10s   no     RSA
  post-quantum  in 20s   yes    ML-DSA-65
  ISSUES TO     SVIDS  FIRST EXPIRES
  spiffe://a/b      2  in 30s
  NODE  SEQUENCE  REPORTED
  n1        1200  10s ago
"""
        self.assertEqual(expected, shown(answer).partition("\n")[2][: len(expected)])
        self.assertIn("  issued  X.509-SVIDs 12  JWT-SVIDs 0  post-quantum leaves 3\n", shown(answer))
        coloured = shown(answer, colour=True)
        self.assertEqual([False, True], [f"{RED}in {seconds}s" in coloured for seconds in (10, 20)])

    def test_store_in_trouble(self) -> None:
        """Why a database is not writable is shown."""
        store = {"path": "/x.db", "writable": False, "trouble": "disk full"}
        self.assertIn(f"/x.db  {RED}not writable: disk full", shown(answered(store=store), colour=True))

    def test_room_of_the_store(self) -> None:
        """What records take and what is left are shown, in days and below two in hours, as far as that is known."""
        store: dict[str, object] = {"path": "/x.db", "writable": True, "octets": 900}
        self.assertIn("/x.db  writable  records take 900 B\n", shown(answered(store=store)))
        store |= {"octets": 1024, "room": 5 * 2**40}
        self.assertIn("records take 1.0 KiB, 5,120.0 GiB left\n", shown(answered(store=store)))
        store |= {"octets": 1024**2 - 1, "room": 2**20, "roomDays": 2}
        self.assertIn("records take 1,024.0 KiB, 1.0 MiB left for 2 days\n", shown(answered(store=store)))
        self.assertIn("left for 48 hours\n", shown(answered(store=store | {"roomDays": 1.99})))

    def test_several(self) -> None:
        """Processes are apart by an empty line; one that is not reached has its reason."""
        lost = Answer("[::1]:1", error=StatusUnreachable(address="[::1]:1", cause="connection refused"))
        text = shown(answered(), lost)
        self.assertEqual(f"{PROXY}\n[::1]:1 cannot be reached: connection refused\n", text)

    def test_escaped(self) -> None:
        """Texts of a document cannot control a terminal."""
        evil = "\x1b[2J\x9b\u202e\n"
        text = shown(
            answered(
                version=evil,
                trustDomain=evil,
                identities=[{"spiffeID": evil, "notAfter": NOW, "profile": evil}],
                denials={evil: 1},
                lastErrors=[{"at": NOW, "event": evil, "reason": evil, "detail": evil, "source": evil}],
            )
        )
        self.assertEqual(9, text.count(printable(evil)))
        self.assertFalse({"\x1b", "\x9b", "\u202e"} & set(text))

    @given(st.text(max_size=60), st.integers(1, 200))
    def test_any_text_fits(self, text: str, width: int) -> None:
        """No line is wider than the terminal, whatever characters there are; none is broken by them."""
        listener = {"name": text, "protocol": text, "direction": text, "listen": text, "upstream": text, "peers": 1}
        identity = {"spiffeID": text, "notAfter": NOW}
        answer = answered(process=text, listeners=[listener], identities=[identity])
        for line in render([answer], width):
            self.assertLessEqual(columns(written(line, colour=False)), width)
            self.assertFalse([each for each in written(line, colour=False) if ord(each) < 32])
