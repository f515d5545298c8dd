"""
The controller of the webhooks: their authorities, and their configurations at the API server.

The leader writes it once its server answers, so that no configuration is there that nobody serves, and again at once
when somebody changes it. No replica is ready before it is there: who waits for the manager to be ready can be sure that
pods get the proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from twisted.logger import Logger

from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Kind
from svc.manager.admission.authorities import Authorities, advance
from svc.manager.admission.configuration import (
    Repairs,
    connections_configuration,
    is_wanted,
    policies_configuration,
    repaired,
    webhook_configuration,
)
from svc.manager.config import WebhookSettings
from svc.manager.context import ClusterContext
from svc.naming import (
    CONNECTIONS_CONFIGURATION,
    MANAGER,
    POLICIES_CONFIGURATION,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
)
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit

#: Seconds within which all API servers have seen a new configuration, at most a tenth of an authority's life.
_SETTLED: Final = timedelta(seconds=60)
#: Seconds within which the watch brings authorities that were written.
_WRITTEN: Final = 0.2
#: Seconds until an authority is looked at again at the latest: clocks may be set.
_AT_LATEST: Final = 3600.0


#: Stands for a configuration that is not there.
_MISSING: Final[Object] = {"webhooks": [{}]}


class WebhookController:
    """
    Keeps the authorities and the configuration.

    Args:
        answers: fires when the server of this replica answers, verified by these authorities; raises WebhookNotServed.
        published: called when the API server has the configuration, on every replica.
    """

    log = Logger(namespace="svc.manager")
    name = "webhook-configuration"

    def __init__(
        self,
        context: ClusterContext,
        settings: WebhookSettings,
        answers: Callable[[Sequence[x509.Certificate]], Awaitable[None]],
        published: Callable[[], object],
        changed: Callable[[], object],
    ) -> None:
        self._client = context.client
        self._settings = settings
        self._namespace = context.namespace
        self._answers = answers
        self._now = context.now
        self._life = timedelta(seconds=settings.authorityLife)
        self._secrets = context.named(SECRETS, WEBHOOK_SECRET, changed, namespace=context.namespace)
        wanted = [
            (MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION, webhook_configuration),
            (VALIDATING_WEBHOOKS, POLICIES_CONFIGURATION, policies_configuration),
        ]
        if settings.compartments:
            wanted.append((VALIDATING_WEBHOOKS, CONNECTIONS_CONFIGURATION, connections_configuration))
        self._configurations = [
            (kind, context.named(kind, name, self._seen), configuration) for kind, name, configuration in wanted
        ]
        self._changed = changed
        self._on_published = published
        #: When the configuration had a bundle for the first time.
        self._published: tuple[str, datetime] | None = None
        self._answered = False
        self._repairs = Repairs()

    @property
    def caches(self) -> Sequence[Cache]:
        return self._secrets, *(cache for _kind, cache, _configuration in self._configurations)

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> float:
        """Bring the authorities forward, then the configuration; returns the seconds until the next step is due."""
        now = self._now()
        secret = self._secrets.objects.get((self._namespace, WEBHOOK_SECRET))
        former = None if secret is None else Authorities.from_data(secret.get("data") or {})
        self._note(former, now)
        authorities = advance(former, now, self._life, lambda _certificate: self._is_settled(former, now))
        if authorities is not former:
            await self._write(authorities, secret)
            # The servers take their certificates from what was written, first.
            return _WRITTEN
        due = self._until_due(authorities, now)
        for kind, cache, configuration in self._configurations:
            wanted = configuration(self._settings, self._namespace, authorities.bundle)
            due = min(due, await self._write_configuration(kind, cache, wanted, authorities, now) or due)
        return due

    async def _write_configuration(
        self, kind: Kind, cache: Cache, wanted: Object, authorities: Authorities, now: datetime
    ) -> float:
        """Write a configuration unless it is as wanted; returns the seconds until it may be repaired, 0 for done."""
        name = wanted["metadata"]["name"]
        found = cache.objects.get(("", name))
        if found is not None and is_wanted(found, wanted):
            return 0.0
        if not self._answered:
            await self._answers(authorities.trusted)
            self._answered = True
        if found is None:
            await self._client.apply(kind, wanted, manager=MANAGER)
            return 0.0
        changed = _bundles([found]) == {authorities.bundle}
        if changed and (pause := self._repairs.pause(name, now)):
            return pause
        await self._client.replace(kind, repaired(found, wanted))
        if changed:
            attributes = {"configuration": name, "repairs": self._repairs.note(name, now)}
            emit(self.log, ManagerEvent.WEBHOOK_REPAIRED, attributes=attributes)
        return 0.0

    def _seen(self) -> None:
        if all(cache.objects for _kind, cache, _configuration in self._configurations):
            self._on_published()
        self._changed()

    def _note(self, authorities: Authorities | None, now: datetime) -> None:
        """Note since when the configuration has had the bundle of these authorities."""
        caches = (cache for _kind, cache, _configuration in self._configurations)
        bundles = _bundles([found for cache in caches for found in cache.objects.values() or (_MISSING,)])
        if authorities is None or bundles != {authorities.bundle}:
            self._published = None
        elif self._published is None or self._published[0] != authorities.bundle:
            self._published = (authorities.bundle, now)

    def _is_settled(self, authorities: Authorities | None, now: datetime) -> bool:
        return (
            authorities is not None
            and self._published is not None
            and self._published[0] == authorities.bundle
            and now >= self._published[1] + self._settling
        )

    @property
    def _settling(self) -> timedelta:
        return min(_SETTLED, self._life / 10)

    async def _write(self, authorities: Authorities, former: Object | None) -> None:
        metadata = {"name": WEBHOOK_SECRET, "namespace": self._namespace}
        body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        body["data"] = authorities.to_data()
        if former is None:
            await self._client.create(SECRETS, body)
        else:
            metadata["resourceVersion"] = former["metadata"]["resourceVersion"]
            await self._client.replace(SECRETS, body)

    def _until_due(self, authorities: Authorities, now: datetime) -> float:
        instants = [authorities.current.end]
        if authorities.next is None:
            instants.append(authorities.current.due(self._life))
        else:
            instants.append((self._published[1] if self._published else now) + self._settling)
        if authorities.previous is not None:
            instants.append(authorities.previous.end)
        return min(max(0.05, (min(instants) - now).total_seconds() + 0.05), _AT_LATEST)


def _bundles(configurations: Sequence[Object]) -> set[str | None]:
    """The authorities of all webhooks of configurations."""
    webhooks = [each for found in configurations for each in found.get("webhooks") or ()]
    return {each.get("clientConfig", {}).get("caBundle") for each in webhooks}
