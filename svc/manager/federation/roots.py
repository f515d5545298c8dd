"""
The federation roots of the cluster: the data of a Secret in, the roots out, and their successors.

The Secret holds both private keys of the current sequence, and of each of the last sequences the package that
introduced its roots, which the roots before have signed too: those are needed for nothing else, and are not kept.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from svc.envelope.claims import seconds
from svc.envelope.keys import Signer
from svc.errors import SvcError
from svc.federation.fingerprint import Fingerprint
from svc.federation.package import VerifiedPackage, sign_package, verify_package
from svc.federation.payload import PackageContent, Previous
from svc.federation.rootkeys import RootKeys
from svc.federation.roots import FederationRoots
from svc.federation.succession import MAX_LINKS
from svc.identity import TrustDomain
from svc.kube.client import Object
from svc.strictjson import dumps

#: The key of the Secret.
KEYS: Final = "keys.json"
_VERSION: Final = 1
#: Octets of all packages that are kept; a Secret has 1 MiB at most.
MAX_KEPT: Final = 700 * 1024


class FederationKeysInvalid(SvcError):
    """the Secret {name} with the federation roots cannot be used: {defect}"""

    reason = "federation_keys_invalid"
    hint = "restore it from a backup: peers know this cluster by these keys, and the manager never replaces them"


class FederationKeysMissing(SvcError):
    """the Secret {name} with the federation roots is gone, and sequence {sequence} of them was published"""

    reason = "federation_keys_missing"
    hint = (
        "restore it from a backup; or delete the SvcCluster, so that new roots are made, and give every peer the new "
        "fingerprint"
    )


@dataclass(frozen=True)
class OwnRoots:
    """
    The federation roots with their private keys.

    Attributes:
        sequence: counts sets of roots, from 1.
        made: when they were made, in whole seconds.
        previous: those before; None for the first.
        links: by their sequence, the packages that introduced the last sets of roots, this one among them.
    """

    trust_domain: TrustDomain
    sequence: int
    made: datetime
    keys: RootKeys
    previous: Previous | None = None
    links: Mapping[int, bytes] = field(default_factory=dict, repr=False)

    @property
    def signers(self) -> tuple[Signer, Signer]:
        """Both keys as signers."""
        return self.keys.signers

    @property
    def public(self) -> FederationRoots:
        """The public keys."""
        return self.keys.roots

    @property
    def fingerprint(self) -> Fingerprint:
        """Of roots and trust domain."""
        return self.public.fingerprint(self.trust_domain)

    @property
    def introduction(self) -> VerifiedPackage | None:
        """The package that introduced these roots; None for the first ones."""
        found = self.links.get(self.sequence)
        return None if found is None else verify_package(found)


def first_roots(trust_domain: TrustDomain, now: datetime) -> OwnRoots:
    """Make the first roots of a trust domain."""
    return _generated(trust_domain, 1, now)


def succeeded(roots: OwnRoots, now: datetime, content: Callable[[OwnRoots], PackageContent]) -> OwnRoots:
    """
    Make the roots that follow others.

    Args:
        content: returns what a package of the new roots says.
    """
    previous = Previous(roots.sequence, roots.fingerprint)
    new = _generated(roots.trust_domain, roots.sequence + 1, now, previous)
    package = sign_package(content(new), new.signers, previous=roots.signers).package.serialize()
    return OwnRoots(
        new.trust_domain,
        new.sequence,
        new.made,
        new.keys,
        previous,
        _kept({**roots.links, new.sequence: package}),
    )


def read_roots(secret: Object, trust_domain: TrustDomain) -> OwnRoots:
    """
    Read the roots of a Secret.

    Raises:
        FederationKeysInvalid: it cannot be read, or is of another trust domain.
    """
    name = secret["metadata"]["name"]
    text = (secret.get("data") or {}).get(KEYS)
    if not text:
        raise FederationKeysInvalid(name=name, defect=f"it has no key {KEYS}")
    try:
        found = _read(json.loads(base64.b64decode(text)))
    except (SvcError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # Without the parser's message, which may contain a part of a key.
        raise FederationKeysInvalid(name=name, defect=f"it is malformed ({type(error).__name__})") from None
    if found.trust_domain != trust_domain:
        raise FederationKeysInvalid(name=name, defect=f"it is of the trust domain {found.trust_domain}")
    return found


def secret_data(roots: OwnRoots) -> dict[str, str]:
    """Return the data of the Secret with these roots."""
    document: dict[str, Any] = {
        "v": _VERSION,
        "trustDomain": roots.trust_domain.name,
        "sequence": roots.sequence,
        "madeAt": seconds(roots.made),
        "keys": json.loads(roots.keys.serialize(roots.trust_domain)),
        "links": {str(sequence): each.decode("ascii") for sequence, each in roots.links.items()},
    }
    if roots.previous is not None:
        document["previous"] = {
            "sequence": roots.previous.sequence,
            "fingerprint": roots.previous.fingerprint.base32,
        }
    return {KEYS: base64.b64encode(json.dumps(document, indent=1).encode()).decode("ascii")}


def _generated(trust_domain: TrustDomain, sequence: int, now: datetime, previous: Previous | None = None) -> OwnRoots:
    return OwnRoots(trust_domain, sequence, now.replace(microsecond=0), RootKeys.make(), previous)


def _kept(links: Mapping[int, bytes]) -> dict[int, bytes]:
    """The newest packages, as many as are served and fit into the Secret."""
    kept: dict[int, bytes] = {}
    for sequence in sorted(links, reverse=True)[:MAX_LINKS]:
        if sum(map(len, kept.values())) + len(links[sequence]) > MAX_KEPT:
            break
        kept[sequence] = links[sequence]
    return dict(sorted(kept.items()))


def _read(document: Any) -> OwnRoots:
    if document["v"] != _VERSION:
        raise ValueError(f"version {document['v']}")
    before = document.get("previous")
    written = TrustDomain.parse(document["trustDomain"])
    keys = RootKeys.parse(dumps(document["keys"]), written)
    sequence = int(document["sequence"])
    if (before is None) != (sequence == 1):
        raise ValueError("the roots before")
    return OwnRoots(
        written,
        sequence,
        datetime.fromtimestamp(int(document["madeAt"]), UTC),
        keys,
        None if before is None else Previous(before["sequence"], Fingerprint.from_base32(before["fingerprint"])),
        {int(number): each.encode("ascii") for number, each in document["links"].items()},
    )
