"""
The controller of licenses: Secrets in, the object ``SvcLicenseStatus`` out.

A license that has ended never stops traffic: nothing that carries traffic asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from twisted.logger import Logger

from svc import naming
from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.events import EventRecorder
from svc.kube.kinds import FOREIGN_CLUSTERS, LICENSE_STATUS_NAME, LICENSE_STATUSES, PODS, SECRETS
from svc.kube.status import apply_status
from svc.kube.times import from_time
from svc.license.payload import Enforcement
from svc.license.states import Assessment
from svc.license.vendors import VendorKey
from svc.manager.context import ClusterContext
from svc.manager.licenses.status import (
    Assessed,
    FoundLicense,
    assess_all,
    counting,
    license_status,
    read_secret,
    sentence,
)
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit

#: Seconds after which the status is written anew, although only its ``observedTime`` changes.
OBSERVED_EVERY: Final = 60.0
#: Seconds that are waited for beyond an instant, so that it has come.
_BEYOND: Final = 0.01


class LicenseController:
    """
    Follows Secrets, injected pods and peers, evaluates licenses, and writes the status where this replica leads.

    Args:
        keys: which licenses are accepted.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "license-status"

    def __init__(
        self,
        context: ClusterContext,
        keys: Sequence[VendorKey],
        events: EventRecorder,
        changed: Callable[[], object],
    ) -> None:
        self._client = context.client
        self._trust_domain = context.trust_domain
        self._keys = keys
        self._events = events
        self._now = context.now
        self._changed = changed
        #: Verified Secrets by namespace, name, UID and version.
        self._read: dict[tuple[str, ...], FoundLicense] = {}
        #: What the last reconcile found.
        self._last = ("", frozenset[str]())
        self._secrets = [
            context.cache(
                *(SECRETS, changed),
                namespace=each,
                labels=f"{naming.LABEL_LICENSE}=true",
                fields=f"type={naming.LICENSE_SECRET_TYPE}",
            )
            for each in context.settings.licenseNamespaces
        ]
        self._pods = context.cache(
            *(PODS, self._pods_changed),
            labels=f"{naming.LABEL_INJECTED}=true",
            fields="status.phase!=Succeeded,status.phase!=Failed",
        )
        self._peers = context.cache(FOREIGN_CLUSTERS, changed)
        self._statuses = context.named(LICENSE_STATUSES, LICENSE_STATUS_NAME, changed)

    @property
    def caches(self) -> tuple[Cache, ...]:
        """What it follows."""
        return (*self._secrets, self._pods, self._peers, self._statuses)

    async def follow(self) -> None:
        await run_all(self.caches)

    @property
    def synced(self) -> bool:
        """Whether all was read once."""
        return all(each.synced.is_set() for each in self.caches)

    @property
    def counting(self) -> Assessment:
        """The license that counts now."""
        return counting(self._assessed(self._now()))

    @property
    def effect(self) -> tuple[str, bool] | None:
        """What is wrong with the license, and whether new policies are refused for it; None where there is nothing."""
        first = self.counting
        if first.state.in_force and not first.exceeded:
            return None
        # Where there is none any more, that of the license before counts.
        former = ((self._status() or {}).get("status") or {}).get("enforcement")
        found = former if first.verified is None else first.verified.license.enforcement.value
        return None if found is None else (sentence(first), found == Enforcement.HARD.value)

    async def reconcile(self) -> float:
        """
        Write the status where it is another one, or old.

        Returns:
            Seconds until something changes by time alone, at most those after which ``observedTime`` is due.
        """
        now = self._now()
        assessed = self._assessed(now)
        self._last = _kinds(counting(assessed))
        return await self._written(assessed, now)

    async def _written(self, assessed: Sequence[Assessed], now: datetime) -> float:
        found = self._status()
        if found is None:
            found = await self._client.create(LICENSE_STATUSES, _NEW)
        former = found.get("status") or {}
        observed = from_time(former.get("observedTime"))
        status = license_status(assessed, now, self._usage(), former)
        due = None if observed is None else observed + timedelta(seconds=OBSERVED_EVERY)
        if due is None or now >= due or status != {**former, "observedTime": status["observedTime"]}:
            due = now + timedelta(seconds=OBSERVED_EVERY)
            await apply_status(self._client, LICENSE_STATUSES, found, status, manager=naming.MANAGER)
            if former.get("state") != status["state"] or former.get("secretRef") != status.get("secretRef"):
                await self._report(found, counting(assessed), former, status)
        changes = [each.assessment.next_change for each in assessed]
        next_time = min([due, *(each.at for each in changes if each is not None)])
        return max(0.0, (next_time - now).total_seconds()) + _BEYOND

    async def _report(self, found: Object, first: Assessment, former: Object, status: Object) -> None:
        secret = status.get("secretRef") or {}
        emit(
            self.log,
            ManagerEvent.LICENSE_CHANGED,
            outcome="success" if first.state.in_force else "failure",
            detail_reason=first.reason or None,
            message=sentence(first),
            attributes={
                "state": status["state"],
                "former_state": former.get("state"),
                "license": status.get("id"),
                "source": "/".join(secret.values()) or None,
            },
        )
        kind: Literal["Normal", "Warning"] = "Normal" if first.state.in_force else "Warning"
        about = {**found, "apiVersion": LICENSE_STATUSES.api_version, "kind": LICENSE_STATUSES.name}
        await self._events.record(about, kind, status["state"], "Evaluate", sentence(first))

    def _assessed(self, now: datetime) -> list[Assessed]:
        former = (self._status() or {}).get("status") or {}
        latest = from_time(former.get("observedTime"))
        return assess_all(self._licenses(), now, self._trust_domain, self._usage(), latest)

    def _licenses(self) -> list[FoundLicense]:
        read: dict[tuple[str, ...], FoundLicense] = {}
        for cache in self._secrets:
            for (namespace, name), secret in cache.objects.items():
                version = (namespace, name, secret["metadata"]["uid"], secret["metadata"]["resourceVersion"])
                read[version] = self._read.get(version) or read_secret(secret, self._keys)
        self._read = read
        return list(read.values())

    def _status(self) -> Object | None:
        return self._statuses.objects.get(("", LICENSE_STATUS_NAME))

    def _usage(self) -> dict[str, int]:
        return {"workloads": len(self._pods.objects), "federatedPeers": len(self._peers.objects)}

    def _pods_changed(self) -> None:
        """Pods come and go all the time: their number is written each minute, and at once where a state changes."""
        if self.synced and _kinds(self.counting) != self._last:
            self._changed()


#: Of the cluster, without a ``spec``.
_NEW: Final[Object] = {
    "apiVersion": LICENSE_STATUSES.api_version,
    "kind": LICENSE_STATUSES.name,
    "metadata": {"name": LICENSE_STATUS_NAME},
}


def _kinds(first: Assessment) -> tuple[str, frozenset[str]]:
    return first.state.value, frozenset(each.name for each in first.exceeded)
