"""The roots of the post-quantum issuer: the data of a Secret in, those that are due out, by the rule of the issuer."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.identity.pqbundle import PqBundles
from svc.kube.client import Object
from svc.manager.config import IssuerSettings
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.keydocument import KeyDocumentInvalid, read_keys, serialize_keys
from svc.pqissuer.keyrecords import certified_record, read_pq_root, slots_of
from svc.pqissuer.roots import PqRootRing
from svc.pqissuer.rotation import Slot

#: The key of the Secret.
KEYS: Final = "keys.json"
#: The oldest first.
Roots: TypeAlias = tuple[Slot[PqIssuer], ...]


def due_roots(
    roots: Roots, trust_domain: TrustDomain, settings: IssuerSettings, random: Callable[[int], bytes], now: datetime
) -> Roots:
    """
    Return the roots from now on: without those that have ended, with the one that is due.

    Args:
        random: returns that many random octets.
        now: aware.
    """
    ttl = timedelta(seconds=settings.rootTtl)
    held = PqRootRing(trust_domain, PqBundles(), ttl=ttl, algorithm=settings.algorithm, random=random)
    held.ring.resume(roots, lambda _slots: None)
    held.ensure_algorithm(now)
    held.ring.advance(now)
    return held.ring.announced


def next_change(roots: Roots) -> datetime:
    """Return when another root is due, or one ends."""
    return min([roots[-1].succeeded_at, *(each.expires for each in roots)])


def read_roots(secret: Object, trust_domain: TrustDomain) -> Roots:
    """
    Read the roots of a Secret.

    Raises:
        KeyDocumentInvalid: it cannot be read.
    """
    text = (secret.get("data") or {}).get(KEYS)
    if not text:
        raise KeyDocumentInvalid(defect=f"the Secret {secret['metadata']['name']} has no key {KEYS}")
    records = read_keys(base64.b64decode(text), trust_domain)["pq"]
    try:
        return slots_of(records, lambda record: read_pq_root(record, trust_domain))
    except (SvcError, KeyError, TypeError, ValueError) as error:
        # Without the parser's message, which may contain a part of a key.
        raise KeyDocumentInvalid(defect=f"it is malformed ({type(error).__name__})") from None


def secret_data(roots: Roots, trust_domain: TrustDomain) -> dict[str, str]:
    """Return the data of the Secret with these roots."""
    content = serialize_keys(trust_domain, {"pq": [certified_record(each) for each in roots]})
    return {KEYS: base64.b64encode(content).decode("ascii")}
