"""The metrics of the manager."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from svc.injection import ReviewOutcome

#: What the manager keeps beside that for which there is a controller in the families of reconciles.
UPKEEP: Final = (
    "compiled-policies",
    "entries",
    "federation",
    "foreign-roots",
    "issuer-keys",
    "network-policies",
    "policy-endpoint",
    "webhook-configuration",
)
Source = Literal["configmap", "secret"]

#: Seconds of a reconcile: computed in milliseconds, or as long as the API server takes.
_DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Seconds until the next reconcile: the license status is written each minute.
_DELAYS: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
Reconcile = Callable[[], Awaitable[float | None]]


class ManagerMetrics:
    """
    The families of the manager; series with labels of closed values exist from the start.

    Args:
        registry: holds them.
        controllers: the names of those that have the families of reconciles; others are :data:`UPKEEP`.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        controllers: tuple[str, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._controllers = controllers
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._reconciled = counter("svc_manager_reconcile", "Reconcile attempts", ["controller", "result"])
        name, text = "svc_manager_reconcile_duration_seconds", "Wall time per reconcile call"
        self._durations = histogram(name, text, ["controller"], buckets=_DURATIONS)
        name, text = (
            "svc_manager_reconcile_requeue_after_seconds",
            "Requested requeue delay where the result is requeue",
        )
        self._delays = histogram(name, text, ["controller"], buckets=_DELAYS)
        self._valid = gauge("svc_manager_license_valid", "1 while at least one valid license exists, else 0")
        text = "Reloads of the configuration; the source is all, or the one that was refused"
        self._reloads = counter("svc_manager_config_reloads", text, ["result", "source"])
        text = "Failures of a watch of the configuration, which starts again after 5 s"
        self._watch_errors = counter("svc_manager_config_watch_errors", text, ["source"])
        labels = ["operation", "resource"]
        self._reviews = counter("svc_manager_webhook_requests", "Calls of the admission webhook", [*labels, "result"])
        name, text = "svc_manager_webhook_duration_seconds", "Time until the admission webhook answers"
        self._review_durations = histogram(name, text, labels, buckets=_DURATIONS)
        text = "Failures syncing agent sources from the SPIFFE Workload API socket; reconciles go on"
        self._sync_errors = counter("svc_manager_agent_sources_sync_errors", text)
        text = "Attempts to keep what else there shall be"
        self._upkeep = counter("svc_manager_upkeep", text, ["what", "result"])
        # The names are those of the specification.
        text = "SPIRE instances that there shall be"
        self._instances = gauge("svc_manager_spire_instances_total", text)
        text = "SPIRE instances whose server is ready, and an agent on the node of the manager"
        self._instances_ready = gauge("svc_manager_spire_instances_ready", text)
        self._policies = gauge("svc_manager_policies_total", "Policies, by the kind cluster or namespace", ["kind"])
        text = "Answers to proxies that ask for the policies of their namespace"
        self._policy_requests = counter("svc_manager_policy_requests", text, ["result"])
        text = "Answers to proxies that ask for the statement of their pod"
        self._statement_requests = counter("svc_manager_statement_requests", text, ["result"])
        text = "Bundles and packages: fetched from a peer (pull), served to one or written to SPIRE (push)"
        self._exchanges = counter("svc_manager_bundle_exchange", text, ["direction", "result"])
        self._begin(controllers)

    def _begin(self, controllers: tuple[str, ...]) -> None:
        """Make the series whose labels have closed values."""
        for result in ("allowed", "denied", "error"):
            self._reviews.labels("CREATE", "pods", result)
        for kind in ("cluster", "namespace"):
            self._policies.labels(kind)
        for result in ("sent", "unchanged", "denied", "not_ready"):
            self._policy_requests.labels(result)
            self._statement_requests.labels(result)
        for result in ("success", "error"):
            for what in UPKEEP:
                self._upkeep.labels(what, result)
            self._exchanges.labels("push", result)
            self._exchanges.labels("pull", result)
        for name in controllers:
            self._durations.labels(name)
            self._delays.labels(name)
            for result in ("success", "error", "requeue"):
                self._reconciled.labels(name, result)
        self._reloads.labels("success", "all")
        for source in ("configmap", "secret"):
            self._reloads.labels("error", source)
            self._watch_errors.labels(source)

    def license_valid(self, valid: Callable[[], bool]) -> None:
        """Ask at each scrape whether there is a valid license."""
        self._valid.set_function(lambda: float(valid()))

    def policies(self, kind: str, count: int) -> None:
        """Set how many policies there are."""
        self._policies.labels(kind).set(count)

    def spire_instances(self, *, desired: int, ready: int) -> None:
        """Set how many SPIRE instances there shall be, and how many are ready for this replica."""
        self._instances.set(desired)
        self._instances_ready.set(ready)

    def policies_requested(self, result: str) -> None:
        """Count an answer to a proxy."""
        self._policy_requests.labels(result).inc()

    def statements_requested(self, result: str) -> None:
        """Count an answer to a proxy."""
        self._statement_requests.labels(result).inc()

    def reloaded(self) -> None:
        """Count that a configuration was put in force."""
        self._reloads.labels("success", "all").inc()

    def reload_refused(self, source: Source) -> None:
        """Count that a configuration was refused."""
        self._reloads.labels("error", source).inc()

    def watch_failed(self, source: Source) -> None:
        """Count that a watch of the configuration failed."""
        self._watch_errors.labels(source).inc()

    def reviewed(self, outcome: ReviewOutcome, seconds: float) -> None:
        """Count a call of the webhook."""
        self._reviews.labels(outcome.operation, outcome.resource, outcome.result).inc()
        self._review_durations.labels(outcome.operation, outcome.resource).observe(seconds)

    def sources_failed(self, failures: int) -> None:
        """Count failures at the Workload API."""
        self._sync_errors.inc(failures)

    def kept(self, what: str, *, success: bool) -> None:
        """Count an attempt to keep one of :data:`UPKEEP` as it should be."""
        self._upkeep.labels(what, "success" if success else "error").inc()

    def bundle_served(self, *, found: bool) -> None:
        """Count a request of a peer, which got what it asked for or did not."""
        self._exchanges.labels("push", "success" if found else "error").inc()

    def bundle_written(self, *, success: bool) -> None:
        """Count an attempt to write the bundle of a peer to the SPIRE server, or to delete it there."""
        self._exchanges.labels("push", "success" if success else "error").inc()

    def bundle_fetched(self, *, verified: bool) -> None:
        """Count a poll of a peer, whose package was verified or not."""
        self._exchanges.labels("pull", "success" if verified else "error").inc()

    def failed(self, name: str) -> None:
        """Count that a controller could not even begin."""
        if name in self._controllers:
            self._reconciled.labels(name, "error").inc()
        else:
            self.kept(name, success=False)

    def measured(self, controller: str, reconcile: Reconcile) -> Reconcile:
        """Return ``reconcile`` of a controller with its calls counted, and measured if it is one of ``controllers``."""
        counted = self._timed if controller in self._controllers else self._tried
        return counted(controller, reconcile)

    def _tried(self, what: str, reconcile: Reconcile) -> Reconcile:
        async def counted() -> float | None:
            try:
                again = await reconcile()
            except Exception:
                self.kept(what, success=False)
                raise
            self.kept(what, success=True)
            return again

        return counted

    def _timed(self, controller: str, reconcile: Reconcile) -> Reconcile:

        async def counted() -> float | None:
            began = self._clock()
            try:
                again = await reconcile()
            except Exception:
                self._reconciled.labels(controller, "error").inc()
                raise
            finally:
                self._durations.labels(controller).observe(self._clock() - began)
            self._reconciled.labels(controller, "success" if again is None else "requeue").inc()
            if again is not None:
                self._delays.labels(controller).observe(again)
            return again

        return counted
