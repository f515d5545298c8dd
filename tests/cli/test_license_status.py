"""``svc license status`` without a cluster: what is printed for a status, and whether it is current."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Final, cast

from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from svc.cli.cluster import Cluster
from svc.cli.license import status as command
from svc.cli.license.status import STALE, lease_defect
from svc.kube.client import Client
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.times import from_time, to_micro_time, to_time
from tests.cli.doubles import Ran, run_svc
from tests.integration.test_crds import STATUS

NOW: Final = datetime.fromisoformat("2026-03-02T12:00:00Z")
CURRENT: Final[dict[str, Any]] = {**STATUS, "observedTime": to_time(NOW - timedelta(seconds=20))}
CLUSTER: Final = Cluster("https://192.0.2.1:6443", "prod")
TABLE: Final = """\
License Status
  Cluster: https://192.0.2.1:6443 (context prod)
  State: Grace (next: Expired 1 day ago)
  Valid: True (Grace)
  WithinLimits: Unknown (NotMeasured: m)
  Licensee: ACME GmbH
  Customer: c-1
  Edition: enterprise
  Features: federation, mqtt
  Trust Domains: prod.example.org
  Enforcement: soft
  License: ENfLGLM5WCNdNR8o_Q9JXQ
  Issuer: vendor
  Valid From: 2026-03-01T12:00:00Z (1 day ago)
  Valid Until: 2026-03-01T12:00:00Z (1 day ago)
  Grace Until: 2026-03-01T12:00:00Z (1 day ago)
  Maintenance Until: 2026-03-01T12:00:00Z (1 day ago)
  Secret: svc-system/svc-license-0123456789
  Observed: 2026-03-02T11:59:40Z (20 seconds ago)

LIMIT      ALLOWED  IN USE
clusters   3        not measured
workloads  500      20

SECRET                             STATE                  LICENSEE   VALID UNTIL           COUNTS
svc-system/svc-license-0123456789  Grace                  ACME GmbH  2026-03-01T12:00:00Z  yes
svc-system/other                   Invalid (license_cut)  -          -                     no
"""


def lease(ago: float, holder: str = "pod-1", duration: int | None = 15) -> dict[str, Any]:
    """The ``spec`` of a Lease that was renewed some seconds ago."""
    renewed = to_micro_time(NOW - timedelta(seconds=ago))
    return {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}


class _Answers:
    """A client that answers reads of the status and of the Lease in turn."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    async def get(self, *_names: object) -> object:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class StatusCase(SynchronousTestCase):
    """Runs with a client that has its answers."""

    maxDiff = None

    def status(self, *answers: object, words: tuple[str, ...] = (), now: datetime = NOW) -> Ran:
        """Run the command; all answers have to be asked for."""
        client = _Answers(*answers)
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        def on_cluster(work: Callable[[Client], Coroutine[Any, Any, Any]], _choice: object) -> object:
            return asyncio.run(work(cast(Client, client))), CLUSTER

        self.patch(command, "on_cluster", on_cluster)
        self.patch(asyncio, "sleep", pause)
        ran = run_svc("license", "status", *words, now=now)
        self.assertEqual([], client._answers)
        self.assertLessEqual(sum(pauses), 3)
        return ran


class TableTests(StatusCase):
    """What is printed."""

    def test_whole(self) -> None:
        """Each field that people want, in a fixed layout."""
        ran = self.status({"status": CURRENT}, {"spec": lease(1)})
        self.assertEqual((0, TABLE, ""), (ran.status, ran.stdout.decode(), ran.stderr))

    def test_missing_license(self) -> None:
        """Without a license there are few lines, and no tables; the status is 0."""
        status = {"observedTime": CURRENT["observedTime"], "state": "Missing", "conditions": []}
        ran = self.status({"status": status}, {"spec": lease(1)})
        lines = [
            "License Status",
            f"  Cluster: {CLUSTER}",
            "  State: Missing",
            "  Observed: 2026-03-02T11:59:40Z (20 seconds ago)",
        ]
        self.assertEqual((0, lines), (ran.status, ran.stdout.decode().splitlines()))

    def test_documents(self) -> None:
        """JSON and YAML have the status as it is, and the reason why it is not current."""
        for defect, problem in ((1, None), (16, "manager_away")):
            leases = [{"spec": lease(defect)}] * (1 if problem is None else 2)
            for output, read in (("json", json.loads), ("yaml", strictyaml.loads)):
                ran = self.status({"status": CURRENT}, *leases, words=("-o", output))
                cluster = {"server": CLUSTER.server, "context": "prod"}
                document = {"cluster": cluster, "problem": problem, "status": CURRENT}
                self.assertEqual(document, read(ran.stdout.decode()))
                self.assertEqual(0 if problem is None else 1, ran.status)

    def test_nothing_is_shown_unescaped(self) -> None:
        """Texts of the status cannot move the cursor or forge a line, and odd values do not end the command."""
        evil = "\x1b[2J\n  State: Valid\r\u202e"
        status = copy.deepcopy(CURRENT)
        for name in ("state", "licensee", "customer", "edition", "id", "issuer", "enforcement", "notAfter"):
            status[name] = evil
        status.update(features=[evil], limits={evil: 1}, usage={evil: 2}, secretRef={"namespace": evil, "name": evil})
        status["nextChange"] = {"time": evil, "state": evil}
        status["licenses"] = [dict.fromkeys(STATUS["licenses"][0], evil)]
        status["conditions"] = [{"type": evil, "status": evil, "reason": evil, "message": evil}]
        for output in ("table", "json", "yaml"):
            ran = self.status({"status": status}, {"spec": lease(1)}, words=("-o", output))
            self.assertEqual(0, ran.status, ran.stderr)
            shown = ran.stdout.decode()
            self.assertFalse(set(shown) & set("\x1b\r\u202e"))
            self.assertEqual(0, shown.count("\n  State: Valid"))


class CurrentTests(StatusCase):
    """A missing object, a manager that is away, and a stale status are told apart."""

    def test_missing(self) -> None:
        """No object, and one without a status: nothing is printed."""
        for answer in (NotFound(action="read", detail="none"), {}, {"status": {}}):
            ran = self.status(answer)
            self.assertEqual((1, b""), (ran.status, ran.stdout))
            self.assertRegex(ran.stderr, r"\(license_status_missing\)\n.*kubectl get pods -n svc-system\n$")

    def test_stale(self) -> None:
        """Three minutes are current, and one second more is not; the status is printed all the same."""
        observed = from_time(CURRENT["observedTime"])
        assert observed is not None
        for age, status in ((STALE, 0), (STALE + timedelta(seconds=1), 1)):
            ran = self.status({"status": CURRENT}, {"spec": lease(-600)}, now=observed + age)
            self.assertEqual((status, True), (ran.status, b"ACME GmbH" in ran.stdout))
            self.assertEqual(status, ran.stderr.count("it was written 3 minutes ago"))
            self.assertEqual(status, ran.stderr.count("(license_status_stale)"))

    def test_away(self) -> None:
        """A Lease that is expired, released or gone, also of a stale status."""
        gone = NotFound(action="read", detail="none")
        for answer, defect in (
            ({"spec": lease(60)}, "has expired, it was renewed 1 minute ago"),
            ({"spec": lease(1, "")}, "is held by nobody"),
            ({"spec": {}}, "is not there"),
            (gone, "is not there"),
        ):
            for status in (CURRENT, STATUS):
                ran = self.status({"status": status}, answer, answer)
                self.assertEqual((1, True), (ran.status, b"ACME GmbH" in ran.stdout))
                self.assertIn(f"the Lease svc-system/svc-manager {defect} (manager_away)", ran.stderr)
                self.assertEqual(2, len(ran.stderr.splitlines()))

    def test_successor(self) -> None:
        """A Lease that is taken or renewed meanwhile is held, whatever the clock of this machine says."""
        for first in (lease(60), lease(1, ""), {}):
            ran = self.status({"status": CURRENT}, {"spec": first}, {"spec": lease(50, "pod-2")})
            self.assertEqual((0, ""), (ran.status, ran.stderr))

    def test_lease_not_allowed(self) -> None:
        """Who may not read the Lease sees the status, and that it is not known whether a manager runs."""
        forbidden = KubernetesError("kubernetes_forbidden", action="read leases", detail="no")
        ran = self.status({"status": CURRENT}, forbidden)
        self.assertEqual((0, TABLE), (ran.status, ran.stdout.decode()))
        self.assertEqual("svc: whether a manager runs is not known: it is not allowed to read leases: no\n", ran.stderr)
        ran = self.status({"status": STATUS}, forbidden)
        self.assertIn("(license_status_stale)", ran.stderr)

    def test_lease(self) -> None:
        """A Lease holds for its duration, and has expired at its end."""
        self.assertEqual("", lease_defect(lease(14.999), NOW))
        self.assertIn("has expired", lease_defect(lease(15), NOW))
        self.assertIn("has expired", lease_defect(lease(15, duration=None), NOW))
        self.assertEqual("", lease_defect(lease(15, duration=16), NOW))
        self.assertEqual("is held by nobody", lease_defect({**lease(1), "renewTime": "soon"}, NOW))

    def test_no_cluster(self) -> None:
        """Without a kubeconfig there is one line."""
        ran = run_svc("license", "status")
        self.assertEqual((1, b""), (ran.status, ran.stdout))
        self.assertIn("(kubeconfig_unusable)", ran.stderr)
