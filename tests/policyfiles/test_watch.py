"""Policies in force and changes of their files, with a manual clock and work that ends when the test says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, ensureDeferred, execute
from twisted.internet.task import Clock

from svc.errors import SvcError
from svc.policyfiles.document import CLUSTER_RANK, LOCAL_RANK
from svc.policyfiles.files import PolicyFiles
from svc.policyfiles.settings import Policies, load_policies
from svc.policyfiles.watch import CHECK_EVERY, PolicyWatch
from svc.proxy.config import ProxySettings
from svc.proxy.policy_reports import PolicyReports
from svc.settings import ConfigInvalid
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.metrics import ProxyMetrics
from tests.proxy.parts import LogTestCase, settings_of

POLICY = """
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: NAME}
spec: {authorization: {rules: [{}]}}
"""
#: What is logged of policies.
LOGGED = ("default", "allow", "files", "policies", "rules")


class WatchTests(LogTestCase):
    """A watch on one folder."""

    def setUp(self) -> None:
        """Make a folder with one policy."""
        super().setUp()
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)
        self.write("first")
        self.clock = Clock()
        self.applied: list[Policies] = []
        self.registry = CollectorRegistry()
        self.metrics = ProxyMetrics(self.registry)
        self.held: list[tuple[Deferred[Any], Callable[[], Any]]] | None = None
        self.settings = self.with_pattern()
        self.watch = self.make(self.settings)
        self.addCleanup(lambda: self.watch.running and self.watch.stopService())

    def with_pattern(self, **section: str) -> ProxySettings:
        """A configuration with all files of the folder."""
        keys = "".join(f", {key}: {value}" for key, value in section.items())
        return settings_of(("web", 8443), policy=f"{{files: ['{self.folder}/*.yaml']{keys}}}")

    def write(self, name: str, text: str = POLICY) -> None:
        """Write the file of the folder."""
        Path(self.folder, "a.yaml").write_text(text.replace("NAME", name))

    def make(self, settings: ProxySettings) -> PolicyWatch:  # type: ignore[type-arg]
        """Make a watch and start it."""
        watch = PolicyWatch(
            settings,
            read=lambda given, former: load_policies(given.policy, given.trustDomain, former=former),
            apply=self.applied.append,
            observer=PolicyReports(self.metrics),
            clock=self.clock,
            in_thread=self.in_thread,
            watched=lambda given: (*given.policy.clusterFiles, *given.policy.files),
        )
        watch.startService()
        return watch

    def in_thread(self, work: Callable[[], Any]) -> Deferred[Any]:
        """Run work at once, or when the test says."""
        if self.held is None:
            return execute(work)
        done: Deferred[Any] = Deferred()
        self.held.append((done, work))
        return done

    def look(self, times: int = 1) -> list[str]:
        """Look at the files; returns the names of the policies in force."""
        for _ in range(times):
            self.clock.advance(CHECK_EVERY)
        return [each.name for each in self.watch.current.files.policies]

    def counted(self, result: str) -> float:
        """Return how many changes had a result."""
        return self.registry.get_sample_value("svc_proxy_policy_reloads_total", {"result": result}) or 0.0

    def test_start(self) -> None:
        """What is in force at the start is logged; a file that is not valid refuses the start."""
        attributes = self.only(ProxyEvent.POLICY_LOADED).attributes
        self.assertEqual(("deny", 0, 1, 1, 1), tuple(attributes[each] for each in LOGGED))
        self.assertEqual(0.0, self.counted("success"))
        self.write("Not A Name")
        self.assertRaises(ConfigInvalid, self.make, self.settings)

    def test_change(self) -> None:
        """A change is applied once the files are the same at two looks; a file that is only touched changes nothing."""
        self.write("second")
        self.assertEqual(["first"], self.look())
        self.write("third")
        self.assertEqual(["first"], self.look())
        self.assertEqual(["third"], self.look())
        self.assertEqual([self.watch.current], self.applied)
        os.utime(os.path.join(self.folder, "a.yaml"), (1, 1))
        self.look(3)
        self.assertEqual(
            (1, 1.0, 2), (len(self.applied), self.counted("success"), len(self.of(ProxyEvent.POLICY_LOADED)))
        )

    def test_file_added_and_removed(self) -> None:
        """A pattern finds new files; without any file nothing is allowed by one."""
        Path(self.folder, "b.yaml").write_text(POLICY.replace("NAME", "more"))
        self.assertEqual(["first", "more"], self.look(2))
        for name in ("a.yaml", "b.yaml"):
            os.remove(os.path.join(self.folder, name))
        self.assertEqual([], self.look(2))

    def test_bad_file(self) -> None:
        """A bad file changes nothing, is counted for each change and logged once for each reason."""
        for number in range(2):
            self.write("Bad", POLICY + " " * number)
            self.assertEqual(["first"], self.look(3))
        logged = self.only(ProxyEvent.POLICY_REJECTED)
        self.assertEqual(("policy_file_invalid", 2.0), (logged.fields["detail_reason"], self.counted("error")))
        self.assertIn(f"{self.folder}/a.yaml is not valid: metadata.name: 'Bad'", logged.fields["detail"])
        self.write("good")
        self.assertEqual(["good"], self.look(2))
        self.write("Bad")
        self.look(2)
        self.assertEqual(2, len(self.of(ProxyEvent.POLICY_REJECTED)))

    def test_one_bad_file_of_two(self) -> None:
        """Nothing of a valid file is applied while another is not valid."""
        self.write("second")
        Path(self.folder, "b.yaml").write_text("kind: Unknown")
        self.assertEqual(["first"], self.look(3))

    def test_bad_file_of_a_namespace(self) -> None:
        """What the cluster changes is in force all the same; the namespace keeps its part until that is valid."""
        cluster = Path(self.folder, "cluster")
        cluster.write_text(POLICY.replace("NAME", "all"))
        self.watch.stopService()
        self.watch = self.make(self.with_pattern(clusterFiles=f"['{cluster}']"))
        self.write("Bad")
        self.assertEqual(["all", "first"], self.look(3))
        self.assertEqual(1, len(self.of(ProxyEvent.POLICY_REJECTED)))
        cluster.write_text(POLICY.replace("NAME", "all") + "---" + POLICY.replace("NAME", "no"))
        self.assertEqual(["all", "no", "first"], self.look(3))
        self.assertEqual(["local", "cluster"], [self.rank(each) for each in ("first", "no")])
        self.assertEqual((1, 2.0), (len(self.of(ProxyEvent.POLICY_REJECTED)), self.counted("error")))
        cluster.write_text("kind: Unknown")
        self.assertEqual(["all", "no", "first"], self.look(3))
        cluster.write_text(POLICY.replace("NAME", "all"))
        self.write("second")
        self.assertEqual(["all", "second"], self.look(3))
        self.write("Bad")
        self.failureResultOf(ensureDeferred(self.watch.load(self.watch._settings)), SvcError)
        self.watch.stopService()
        self.assertRaises(ConfigInvalid, self.make, self.watch._settings)

    def rank(self, name: str) -> str:
        """Who has written a policy."""
        (found,) = (each for each in self.watch.current.files.policies if each.name == name)
        return {CLUSTER_RANK: "cluster", LOCAL_RANK: "local"}[found.rank]

    def test_slow_disk(self) -> None:
        """While a look is under way no other begins; its result is dropped after a reload of the configuration."""
        self.write("second")
        self.look()
        self.held = []
        self.look(5)
        [(done, work)] = self.held
        found = work()
        self.held = None
        narrower = self.with_pattern(default="deny")
        policies = self.successResultOf(ensureDeferred(self.watch.load(narrower)))
        self.assertIs(policies, self.watch.policies_of(narrower))
        self.assertTrue(self.watch.take(narrower, policies))
        done.callback(found)
        self.assertEqual((policies, []), (self.watch.current, self.applied))

    def test_reload(self) -> None:
        """A reload of the configuration reads the files too; what differs is in force from then on."""
        same = self.with_pattern()
        self.assertFalse(self.watch.take(same, self.successResultOf(ensureDeferred(self.watch.load(same)))))
        self.write("second")
        policies = self.successResultOf(ensureDeferred(self.watch.load(same)))
        self.assertEqual(["first"], self.look(0))
        self.assertTrue(self.watch.take(same, policies))
        self.assertEqual(["second"], self.look(3))
        self.assertEqual([], self.applied)
        other = self.with_pattern(default="allow")
        self.assertTrue(self.watch.take(other, self.successResultOf(ensureDeferred(self.watch.load(other)))))

    def test_change_during_a_reload(self) -> None:
        """Files that change between the load of a configuration and its application are read after it."""
        same = self.with_pattern()
        policies = self.successResultOf(ensureDeferred(self.watch.load(same)))
        self.write("second")
        self.look()
        self.watch.take(same, policies)
        self.assertEqual(["second"], self.look(3))

    def test_end(self) -> None:
        """A stopped watch looks no more."""
        self.watch.stopService()
        self.assertEqual([], self.clock.getDelayedCalls())

    def offer(self, name: str) -> Deferred[None]:
        """Offer one policy of another origin."""
        path = Path(self.folder, "offered")
        path.write_text(POLICY.replace("NAME", name))
        section = {"files": (str(path),)}

        def read(given: ProxySettings, _former: PolicyFiles | None) -> Policies:
            return load_policies(given.policy.model_copy(update=section), given.trustDomain)

        return ensureDeferred(self.watch.offer(read))

    def test_offer(self) -> None:
        """What is offered takes the place of the files, also for a new configuration; files then change nothing."""
        self.successResultOf(self.offer("offered"))
        self.assertEqual(["offered"], self.look())
        self.assertEqual(([self.watch.current], 1.0), (self.applied, self.counted("success")))
        self.write("second")
        self.assertEqual(["offered"], self.look(3))
        narrower = self.with_pattern(default="allow")
        loaded = self.successResultOf(ensureDeferred(self.watch.load(narrower)))
        self.assertTrue(self.watch.take(narrower, loaded))
        self.assertEqual(["offered"], self.look(3))
        self.successResultOf(self.offer("offered"))
        self.assertEqual(1, len(self.applied))

    def test_refused_offer(self) -> None:
        """An offer that is not valid changes nothing, and the files stay; it is logged once for each reason."""
        for _ in range(2):
            self.failureResultOf(self.offer("Not A Name"), SvcError)
        self.assertEqual((2.0, 1), (self.counted("error"), len(self.of(ProxyEvent.POLICY_REJECTED))))
        self.write("second")
        self.assertEqual(["second"], self.look(3))

    def test_offer_during_a_reload(self) -> None:
        """What is offered between the load of a configuration and its application is in force after it."""
        other = self.with_pattern(default="allow")
        policies = self.successResultOf(ensureDeferred(self.watch.load(other)))
        self.successResultOf(self.offer("offered"))
        self.watch.take(other, policies)
        self.assertEqual(["offered"], self.look(3))
        self.held = []
        offering = self.offer("again")
        done, work = self.held.pop()
        self.held = None
        narrower = self.with_pattern()
        self.watch.take(narrower, self.successResultOf(ensureDeferred(self.watch.load(narrower))))
        done.callback(work())
        self.successResultOf(offering)
        self.assertEqual((["again"], "deny"), (self.look(3), self.watch._settings.policy.default))
        self.assertNotIn("default allow", str(self.watch.current.rules))

    def test_look_meanwhile(self) -> None:
        """A look at the files that began before an offer does not undo it."""
        self.write("second")
        self.look()
        self.held = []
        self.look()
        done, work = self.held.pop()
        self.held = None
        self.successResultOf(self.offer("offered"))
        done.callback(work())
        self.assertEqual(["offered"], self.look(3))
