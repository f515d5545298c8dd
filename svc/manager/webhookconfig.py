"""
The configuration of the webhook at the API server, and the controller that keeps it and the authorities.

The leader writes it once its server answers, so that no configuration is there that nobody serves, and again at once
when somebody changes it. No replica is ready before it is there: who waits for the manager to be ready can be sure that
pods get the proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509

from svc.compartments.admission import GROUP_PREFIX
from svc.errors import SvcError
from svc.kube.cache import Cache, run_all
from svc.kube.client import Client, Object
from svc.kube.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Kind
from svc.manager.authorities import Authorities, advance
from svc.manager.config import WebhookSettings
from svc.naming import (
    CONNECTIONS_CONFIGURATION,
    DOMAIN,
    INJECTION_ENABLED,
    LABEL_INJECTION,
    LABEL_MANAGED_BY,
    MANAGER,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
)

PATH: Final = "/inject"
CONNECT_PATH: Final = "/connect"
#: Namespaces that never get the proxy; that of the manager is another one.
_NEVER: Final = ("kube-node-lease", "kube-public", "kube-system")
#: Seconds within which all API servers have seen a new configuration, at most a tenth of an authority's life.
_SETTLED: Final = timedelta(seconds=60)
#: Seconds within which the watch brings authorities that were written.
_WRITTEN: Final = 0.2
#: Seconds until an authority is looked at again at the latest: clocks may be set.
_AT_LATEST: Final = 3600.0


class WebhookNotServed(SvcError):
    """the server of the webhook does not answer at {address}: {detail}"""

    reason = "webhook_not_served"
    hint = "the configuration of the webhook is written when it answers: look at /readyz of adminAddr"


def webhook_configuration(settings: WebhookSettings, namespace: str, bundle: str) -> dict[str, Any]:
    """
    Return the configuration of the injection.

    Args:
        namespace: of the manager.
        bundle: ``caBundle``, PEM in base64.
    """
    never = sorted({*_NEVER, namespace})
    webhook = _webhook(settings, namespace, bundle, PATH, f"injection.{DOMAIN}", "CREATE", ["pods"])
    webhook |= {
        "failurePolicy": settings.failurePolicy,
        "namespaceSelector": {
            "matchLabels": {LABEL_INJECTION: INJECTION_ENABLED},
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never}],
        },
        "reinvocationPolicy": "IfNeeded",
    }
    return _configuration(WEBHOOK_CONFIGURATION, webhook)


def connections_configuration(settings: WebhookSettings, namespace: str, bundle: str) -> dict[str, Any]:
    """Return the configuration of the reviews of connections to pods: for members of compartments alone."""
    resources = ["pods/attach", "pods/exec", "pods/portforward"]
    webhook = _webhook(settings, namespace, bundle, CONNECT_PATH, f"compartments.{DOMAIN}", "CONNECT", resources)
    concerned = (
        f"has(request.userInfo.groups) && request.userInfo.groups.exists(each, each.startsWith('{GROUP_PREFIX}'))"
    )
    webhook |= {
        "failurePolicy": "Fail",
        "namespaceSelector": {},
        # The manager asks the API server twice.
        "timeoutSeconds": 15,
        "matchConditions": [{"name": "compartments", "expression": concerned}],
    }
    return _configuration(CONNECTIONS_CONFIGURATION, webhook)


def _configuration(name: str, webhook: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {LABEL_MANAGED_BY: MANAGER}}
    return {"metadata": metadata, "webhooks": [webhook]}


def _webhook(
    settings: WebhookSettings, namespace: str, bundle: str, path: str, name: str, operation: str, resources: list[str]
) -> dict[str, Any]:
    client: dict[str, Any] = {"caBundle": bundle}
    if settings.address is not None:
        client["url"] = f"https://{settings.address}{path}"
    else:
        client["service"] = {"namespace": namespace, "name": settings.service, "path": path, "port": 443}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
    return {
        "name": name,
        "clientConfig": client,
        "rules": [{**rule, "operations": [operation], "resources": resources}],
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
    }


def server_names(settings: WebhookSettings, namespace: str) -> tuple[str, ...]:
    """The names under which the API server reaches the webhook."""
    if settings.address is not None:
        return (settings.address.host,)
    name = f"{settings.service}.{namespace}.svc"
    return name, f"{name}.cluster.local"


class WebhookController:
    """
    Keeps the authorities and the configuration.

    Args:
        client: of the API server.
        namespace: of the manager.
        answers: fires when the server of this replica answers, verified by these authorities; raises WebhookNotServed.
        published: called when the API server has the configuration, on every replica.
    """

    name = "webhook"

    def __init__(
        self,
        client: Client,
        settings: WebhookSettings,
        namespace: str,
        answers: Callable[[Sequence[x509.Certificate]], Awaitable[None]],
        published: Callable[[], object],
        now: Callable[[], datetime],
        failed: Callable[[SvcError], object],
        changed: Callable[[], object],
    ) -> None:
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._answers = answers
        self._now = now
        self._life = timedelta(seconds=settings.authorityLife)
        self._secrets = Cache(
            *(client, SECRETS, changed, failed), namespace=namespace, fields=f"metadata.name={WEBHOOK_SECRET}"
        )
        self._configurations = Cache(
            *(client, MUTATING_WEBHOOKS, self._seen, failed), fields=f"metadata.name={WEBHOOK_CONFIGURATION}"
        )
        self._connections: Cache | None = None
        if settings.compartments:
            self._connections = Cache(
                *(client, VALIDATING_WEBHOOKS, changed, failed), fields=f"metadata.name={CONNECTIONS_CONFIGURATION}"
            )
        self._changed = changed
        self._on_published = published
        #: When the configuration had a bundle for the first time.
        self._published: tuple[str, datetime] | None = None
        self._answered = False

    @property
    def caches(self) -> Sequence[Cache]:
        further = () if self._connections is None else (self._connections,)
        return self._secrets, self._configurations, *further

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
        arguments = (self._settings, self._namespace, authorities.bundle)
        await self._apply(MUTATING_WEBHOOKS, self._configurations, webhook_configuration(*arguments), authorities)
        if self._connections is not None:
            await self._apply(
                VALIDATING_WEBHOOKS, self._connections, connections_configuration(*arguments), authorities
            )
        return self._until_due(authorities, now)

    async def _apply(self, kind: Kind, cache: Cache, wanted: Object, authorities: Authorities) -> None:
        found = cache.objects.get(("", wanted["metadata"]["name"]))
        if found is None or not contains(found, wanted):
            if not self._answered:
                await self._answers(authorities.trusted)
                self._answered = True
            await self._client.apply(kind, wanted, manager=MANAGER)

    def _seen(self) -> None:
        if self._configurations.objects:
            self._on_published()
        self._changed()

    def _note(self, authorities: Authorities | None, now: datetime) -> None:
        """Note since when the configuration has had the bundle of these authorities."""
        found = self._configurations.objects.get(("", WEBHOOK_CONFIGURATION)) or {}
        bundles = {each.get("clientConfig", {}).get("caBundle") for each in found.get("webhooks") or ()}
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


def contains(found: object, wanted: object) -> bool:
    """Whether an object has everything that is wanted; the API server adds defaults, and lists have to be equal."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(contains(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(contains(*pair) for pair in zip(found, wanted, strict=True))
        )
    return found == wanted
