"""What is wrong with identities on a machine without Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.checks.local import CHECKS, LocalFacts, PqFacts, ProcessFacts, SvidFacts
from svc.checks.model import Level, make_checks
from svc.cli.errors import StatusUnavailable, StatusUnreachable
from svc.process.status import IdentityStatus, RootStatus, Status, StoreStatus
from svc.telemetry.health import Condition
from svc.workload.errors import NoIdentityIssued, PqFileMalformed, PqFileMissing
from tests.checks.kit import Case, findings, problems, uncovered
from tests.checks.test_preflight import NOW

HOUR = timedelta(hours=1)
ID = "spiffe://example.org/ns/pay/sa/api"
SVID = SvidFacts(ID, "example.org", NOW - HOUR / 2, NOW + HOUR / 2)


def status(process: str = "proxy", **changes: Any) -> Status:
    """A status document."""
    found = Status(
        process=process,
        version="0.2.0",
        pid=7,
        started=NOW - HOUR,
        now=NOW,
        ready=True,
        draining=False,
        conditions=(Condition("svid", True, "", "", NOW - HOUR),),
        identities=(IdentityStatus(ID, NOW + HOUR, pq_not_after=NOW + HOUR), IdentityStatus(ID, NOW - HOUR)),
        store=StoreStatus("/var/lib/svc/notary.db", True),
    )
    return replace(found, **changes)


def root(*, ended: bool = False, signs: bool = True, kind: str = "pq") -> RootStatus:
    """A root of an authority."""
    return RootStatus(kind, NOW if ended else NOW + HOUR, signs)


def well() -> LocalFacts:
    """Facts of a machine on which all is well."""
    authority = status("authority", identities=(), store=None, roots=(root(ended=True, signs=False), root()))
    return LocalFacts(
        NOW,
        SVID,
        PqFacts("/run/pq-bundle.json", {"example.org": NOW + HOUR}),
        (
            ProcessFacts("127.0.0.1:9902", status()),
            ProcessFacts("127.0.0.1:9903", StatusUnreachable(address="127.0.0.1:9903", cause="refused"), listens=False),
            ProcessFacts("127.0.0.1:9904", authority),
        ),
    )


def svid(**changes: Any) -> Callable[[LocalFacts], LocalFacts]:
    """Change the SVID."""
    return lambda facts: replace(facts, svid=replace(SVID, **changes))


def pq(**ends: Any) -> Callable[[LocalFacts], LocalFacts]:
    """Replace the roots of the PQ bundle file."""
    return lambda facts: replace(
        facts, pq=PqFacts("/run/pq-bundle.json", {k.replace("_", "."): v for k, v in ends.items()})
    )


def process(**changes: Any) -> Callable[[LocalFacts], LocalFacts]:
    """Change the status of the proxy, which is the only process."""
    return lambda facts: replace(facts, processes=[ProcessFacts("127.0.0.1:9902", status(**changes))])


def no_process(error: Any, *, listens: bool) -> Callable[[LocalFacts], LocalFacts]:
    """Only one address, at which no process of ours answers."""
    return lambda facts: replace(facts, processes=[ProcessFacts("127.0.0.1:9902", error, listens=listens)])


FOREIGN = StatusUnavailable("status_foreign", address="127.0.0.1:9902", defect="it is a web server")
AWAY = StatusUnreachable(address="127.0.0.1:9902", cause="connection refused")
NOT_READY = (
    Condition("svid", True, "", "", NOW),
    Condition("notary", False, "notary_unavailable", "the disk is full", NOW),
)
CASES: list[Case[LocalFacts]] = [
    Case("svid", "expired", svid(not_after=NOW), "0 s ago"),
    Case("svid", "not_yet", svid(not_before=NOW + timedelta(seconds=1)), "2026-11-21T09:00:01Z"),
    Case("svid", "ending", svid(not_before=NOW - 5 * HOUR, not_after=NOW + HOUR), "ends in 1 h"),
    Case("pq-bundle", "expired", pq(example_org=NOW), "example.org"),
    Case("pq-bundle", "not_own", pq(other_org=NOW + HOUR), "it has: other.org"),
    Case("pq-bundle", "pq_bundle_missing", lambda facts: replace(facts, pq=PqFileMissing(path="/run/pq"))),
    Case("pq-bundle", "malformed", lambda facts: replace(facts, pq=PqFileMalformed(path="/run/pq", defect="no JSON"))),
    Case("processes", "none", no_process(AWAY, listens=False), "127.0.0.1:9902"),
    Case("processes", "no_status", no_process(AWAY, listens=True), "connection refused"),
    Case("processes", "no_status", no_process(FOREIGN, listens=True), "it is a web server"),
    Case("processes", "draining", process(draining=True, ready=False), "svc-proxy at 127.0.0.1:9902"),
    Case("processes", "not_ready", process(ready=False, conditions=NOT_READY), "notary: the disk is full"),
    Case("processes", "not_ready", process(ready=False), "no condition says why"),
    Case("credentials", "expired", process(identities=(IdentityStatus(ID, NOW),)), ID),
    Case("credentials", "pq_expired", process(identities=(IdentityStatus(ID, NOW + HOUR, pq_not_after=NOW),)), ID),
    Case("credentials", "store", process(store=StoreStatus("/n.db", False, "the disk is full")), "the disk is full"),
    Case("authority", "no_root", process(process="authority", roots=(root(ended=True), root(signs=False))), "kind pq"),
    Case(
        "authority", "no_root", process(process="authority", roots=(root(signs=False, kind="jwt"), root())), "kind jwt"
    ),
    Case("clock", "off", process(now=NOW + 2 * HOUR), "7200 s behind that of svc-proxy"),
    Case("clock", "drifting", process(now=NOW - timedelta(seconds=6)), "6 s ahead of that of svc-proxy"),
]


class LocalTests(SynchronousTestCase):
    """The checks of a machine."""

    def test_well(self) -> None:
        """Nothing is found where all is well; nor at the bound of the clock and of a renewal."""
        at_bounds = svid(not_before=NOW - 4 * HOUR, not_after=NOW + HOUR)
        for change in (lambda facts: facts, process(now=NOW - timedelta(seconds=5)), at_bounds):
            results = make_checks(CHECKS, change(well()))
            self.assertEqual([], findings(results))
            self.assertEqual((Level.OK, len(CHECKS)), (results.level, len(results.results)))

    def test_cases(self) -> None:
        """Each case is found by its check alone."""
        self.assertEqual([], problems(CHECKS, well, CASES))

    def test_all_covered(self) -> None:
        """There is a case for each defect of each check; the two others need more than one finding."""
        self.assertEqual({("svid", "none"), ("clock", "behind_svid")}, uncovered(CHECKS, CASES))

    def test_no_identity(self) -> None:
        """Without an identity there is no SVID, and nothing is said of it."""
        error = NoIdentityIssued(socket="/run/agent.sock", seconds=10)
        found = findings(make_checks(CHECKS, replace(well(), svid=error)))
        self.assertEqual([("workload-api", "workload_api_unavailable"), ("svid", "none")], found)

    def test_clock_behind(self) -> None:
        """An SVID that begins later than in a minute shows a wrong clock."""
        for seconds, expected in ((60, []), (61, [("clock", "behind_svid")])):
            facts = svid(not_before=NOW + timedelta(seconds=seconds))(well())
            self.assertEqual([("svid", "not_yet"), *expected], findings(make_checks(CHECKS, facts)))
