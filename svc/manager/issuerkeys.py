"""
The controller of the post-quantum issuer's roots: a Secret with their keys, which the issuer reads and never writes.

A root is announced before it signs, by the rule of :mod:`svc.pqissuer.rotation`: the issuer publishes every root of the
Secret, and the agents of the nodes fetch what it publishes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from twisted.logger import Logger

from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.identity.pqbundle import PqBundles
from svc.kube.cache import Cache, run_all
from svc.kube.client import Client, Object
from svc.kube.kinds import SECRETS
from svc.manager.config import ClusterSettings, IssuerSettings
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.keydocument import KeyDocumentInvalid, read_keys, serialize_keys
from svc.pqissuer.keyrecords import certified_record, read_pq_root, slots_of
from svc.pqissuer.roots import PqRootRing
from svc.pqissuer.rotation import Slot
from svc.telemetry.events import Event
from svc.telemetry.logs import emit

#: The key of the Secret.
KEYS: Final = "keys.json"
#: Seconds until the roots are looked at again at the latest: clocks may be set.
_AT_LATEST: Final = 3600.0


class IssuerKeysController:
    """
    Makes roots that are due, and drops those that have ended.

    Args:
        namespace: of the Secret.
        random: returns that many random octets.
        now: the time, aware.
        failed: receives why a watch ended.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "issuer-keys"

    def __init__(
        self,
        client: Client,
        cluster: ClusterSettings,
        settings: IssuerSettings,
        namespace: str,
        random: Callable[[int], bytes],
        now: Callable[[], datetime],
        failed: Callable[[SvcError], object],
        changed: Callable[[], object],
    ) -> None:
        self._client = client
        self._trust_domain = TrustDomain.parse(cluster.trustDomain)
        self._settings = settings
        self._namespace = namespace
        self._random = random
        self._now = now
        self._secrets = Cache(
            *(client, SECRETS, changed, failed), namespace=namespace, fields=f"metadata.name={settings.secret}"
        )

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
        slots = () if secret is None else self._read(secret)
        due = self._advanced(slots, now)
        if due != slots:
            await self._write(due, secret)
            serials = [f"{each.key.certificate.serial_number:x}" for each in due]
            emit(self.log, Event.MANAGER_ISSUER_KEYS, attributes={"roots": " ".join(serials)})
        instants = [due[-1].succeeded_at, *(each.expires for each in due)]
        return min(max(0.05, (min(instants) - now).total_seconds() + 0.05), _AT_LATEST)

    def _advanced(self, slots: tuple[Slot[PqIssuer], ...], now: datetime) -> tuple[Slot[PqIssuer], ...]:
        settings = self._settings
        ttl = timedelta(seconds=settings.rootTtl)
        roots = PqRootRing(self._trust_domain, PqBundles(), ttl=ttl, algorithm=settings.algorithm, random=self._random)
        roots.ring.resume(slots, lambda _slots: None)
        roots.ensure_algorithm(now)
        roots.ring.advance(now)
        return roots.ring.announced

    def _read(self, secret: Object) -> tuple[Slot[PqIssuer], ...]:
        text = (secret.get("data") or {}).get(KEYS)
        if not text:
            raise KeyDocumentInvalid(defect=f"the Secret {self._settings.secret} has no key {KEYS}")
        records = read_keys(base64.b64decode(text), self._trust_domain)["pq"]
        try:
            return slots_of(records, lambda record: read_pq_root(record, self._trust_domain))
        except (SvcError, KeyError, TypeError, ValueError) as error:
            # Without the parser's message, which may contain a part of a key.
            raise KeyDocumentInvalid(defect=f"it is malformed ({type(error).__name__})") from None

    async def _write(self, slots: tuple[Slot[PqIssuer], ...], former: Object | None) -> None:
        content = serialize_keys(self._trust_domain, {"pq": [certified_record(each) for each in slots]})
        metadata = {"name": self._settings.secret, "namespace": self._namespace}
        body: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        body["data"] = {KEYS: base64.b64encode(content).decode("ascii")}
        if former is None:
            await self._client.create(SECRETS, body)
        else:
            body["metadata"] = former["metadata"]
            await self._client.replace(SECRETS, body)
