"""What is logged and counted of changes of policies, and of the manager that gives them."""

from __future__ import annotations

from twisted.logger import Logger

from svc.errors import SvcError
from svc.policyfiles.settings import Policies
from svc.proxy.config import ProxySettings
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit
from svc.telemetry.metrics import ProxyMetrics


class PolicyReports:
    """
    Logs and counts them; implements :class:`svc.policyfiles.watch.PolicyObserver` and
    :class:`svc.workload.managerwatch.ManagerObserver`.
    """

    log = Logger()

    def __init__(self, metrics: ProxyMetrics) -> None:
        self._metrics = metrics
        self._lost = FailureStreak()

    def policies_applied(self, policies: Policies, settings: ProxySettings, *, reloaded: bool) -> None:
        """Other policies are in force."""
        if reloaded:
            self._metrics.policies_loaded.inc()
        files, section = policies.files, settings.policy
        emit(
            self.log,
            ProxyEvent.POLICY_LOADED,
            attributes={
                "default": section.default,
                "allow": len(section.allow),
                "files": len(files.paths),
                "policies": len(files.policies),
                "rules": sum(len(policy.rules) for policy in files.policies),
                "deny_lists": len(files.denied),
                "digest": files.digest if files.paths or files.origin else None,
                "origin": files.origin or None,
            },
        )

    def policies_rejected(self, error: SvcError, *, repeated: bool) -> None:
        """The policies before stay in force; logged once for each reason."""
        self._metrics.policies_rejected.inc()
        if not repeated:
            emit(self.log, ProxyEvent.POLICY_REJECTED, detail_reason=error.reason, detail=str(error))

    def manager_answered(self) -> None:
        """The manager can be asked for policies."""
        if self._lost.count:
            emit(self.log, ProxyEvent.POLICY_MANAGER_FOUND, attributes={"attempts": self._lost.count})
        self._lost.succeeded()

    def manager_failed(self, error: SvcError) -> None:
        """The manager gave none, or one that is not usable; a failure that lasts is logged less and less often."""
        self._metrics.policy_watch_errors.inc()
        if self._lost.failed(error.reason):
            emit(
                self.log,
                ProxyEvent.POLICY_MANAGER_LOST,
                detail_reason=error.reason,
                detail=str(error),
                attributes={"attempts": self._lost.count},
            )
