"""
The controller of the post-quantum issuer's roots: a Secret with their keys, which the issuer reads and never writes.

A root is announced before it signs, by the rule of :mod:`svc.pqissuer.rotation`: the issuer publishes every root of the
Secret, and the agents of the nodes fetch what it publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import Logger

from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.kinds import SECRETS
from svc.manager.config import IssuerSettings
from svc.manager.context import ClusterContext
from svc.manager.issuer.roots import Roots, due_roots, next_change, read_roots, secret_data
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit

#: Seconds until the roots are looked at again at the latest: clocks may be set.
_AT_LATEST: Final = 3600.0


class IssuerKeysController:
    """
    Makes roots that are due, and drops those that have ended.

    Args:
        random: returns that many random octets.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "issuer-keys"

    def __init__(
        self,
        context: ClusterContext,
        settings: IssuerSettings,
        random: Callable[[int], bytes],
        changed: Callable[[], object],
    ) -> None:
        self._client = context.client
        self._trust_domain = context.trust_domain
        self._settings = settings
        self._namespace = context.namespace
        self._random = random
        self._now = context.now
        self._secrets = context.named(SECRETS, settings.secret, changed, namespace=context.namespace)

    @property
    def caches(self) -> Sequence[Cache]:
        return (self._secrets,)

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> float:
        """
        Bring the roots forward.

        Returns:
            Seconds until the next one is due.

        Raises:
            KeyDocumentInvalid: the Secret cannot be read; it is never replaced.
        """
        now = self._now()
        secret = self._secrets.objects.get((self._namespace, self._settings.secret))
        slots = () if secret is None else read_roots(secret, self._trust_domain)
        due = due_roots(slots, self._trust_domain, self._settings, self._random, now)
        if due != slots:
            await self._write(due, secret)
            serials = [f"{each.key.certificate.serial_number:x}" for each in due]
            emit(self.log, ManagerEvent.ISSUER_KEYS, attributes={"roots": " ".join(serials)})
        return min(max(0.05, (next_change(due) - now).total_seconds() + 0.05), _AT_LATEST)

    async def _write(self, slots: Roots, former: Object | None) -> None:
        metadata = {"name": self._settings.secret, "namespace": self._namespace}
        body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        body["data"] = secret_data(slots, self._trust_domain)
        if former is None:
            await self._client.create(SECRETS, body)
        else:
            body["metadata"] = former["metadata"]
            await self._client.replace(SECRETS, body)
