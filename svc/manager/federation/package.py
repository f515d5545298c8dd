"""
The bootstrap package of the cluster: what it says, and when it is signed anew. Pure.

The content is signed again when it changes and a day after it was signed, with the same sequence. ``iat`` never goes
back, also where the clock does: peers would take it for a rollback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage, sign_package
from svc.federation.payload import LIFETIME, M2MEndpoint, PackageContent, PeerBundle
from svc.identity import SpiffeID
from svc.identity.pqbundle import PqBundle
from svc.manager.federation.roots import OwnRoots
from svc.naming import M2M_PATH

#: A package is signed anew after this time, and has the rest of its 30 days for peers that are away.
SIGNED_EVERY: Final = timedelta(days=1)
_ISSUER_PATH: Final = "/svc/manager"


def own_content(roots: OwnRoots, bundle: PeerBundle, pq: PqBundle, now: datetime) -> PackageContent:
    """
    Return what a package says that is signed now.

    Args:
        roots: that sign it.
        bundle: of the own trust domain.
        pq: its post-quantum roots.
    """
    issued = now.replace(microsecond=0)
    return PackageContent(
        issuer=SpiffeID(roots.trust_domain, _ISSUER_PATH),
        issued=issued,
        expires=issued + LIFETIME,
        trust_domain=roots.trust_domain,
        sequence=roots.sequence,
        roots=roots.public,
        previous=roots.previous,
        # The roots themselves are in both bundles.
        chains=(),
        bundle=bundle,
        pq=pq,
        m2m=M2MEndpoint(SpiffeID(roots.trust_domain, M2M_PATH)),
    )


def due_package(
    roots: OwnRoots,
    content: Callable[[datetime], PackageContent],
    published: VerifiedPackage | None,
    endpoint: Endpoint | None,
    now: datetime,
) -> VerifiedPackage:
    """
    Return the package to be published: the one that is, where it says the same and is not old.

    Args:
        content: returns what a package says that is signed at a time.
        published: the one before, of any roots of this trust domain; None where there is none.
        endpoint: the unsigned hint.
    """
    latest = now.replace(microsecond=0)
    if published is not None:
        latest = max(latest, published.content.issued)
        if published.content.fingerprint != roots.fingerprint:
            published = roots.introduction
    if published is not None and now - published.content.issued < SIGNED_EVERY:
        wanted = content(published.content.issued).to_payload()
        if published.package.envelope.payload == wanted:
            if published.package.endpoint == endpoint:
                return published
            return dataclasses.replace(published, package=published.package.with_endpoint(endpoint))
    return sign_package(content(latest), roots.signers, endpoint=endpoint)


def needs_successor(roots: OwnRoots, life: float, now: datetime) -> bool:
    """Whether roots are as old as they become, ``life`` in seconds."""
    return now >= roots.made + timedelta(seconds=life)
