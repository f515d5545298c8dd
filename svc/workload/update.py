"""
Validates one message of the Workload API before anything of it is used.

An update is accepted if it is well-formed, complete and of the expected trust domain, and if every SVID is verified by
the function that verifies peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from svc.errors import SvcError
from svc.identity.bundle import BundleMalformed, BundleSet, X509Bundle
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed, TrustDomain
from svc.identity.svid import X509Svid
from svc.identity.verification import verify_svid
from svc.workload.errors import NoOwnSvid, UpdateRejected

MAX_SVIDS: Final = 64
MAX_FEDERATED: Final = 1024
#: The number of hints in an error, and the length of each.
_HINTS_SHOWN: Final = 8
_HINT_SHOWN: Final = 64


class SvidMessage(Protocol):
    """The fields of ``X509SVID`` (Workload API, section 5.2.1)."""

    spiffe_id: str
    x509_svid: bytes
    x509_svid_key: bytes
    bundle: bytes
    hint: str


class UpdateMessage(Protocol):
    """The fields of ``X509SVIDResponse``."""

    @property
    def svids(self) -> Iterable[SvidMessage]:
        """The SVIDs, the default one first."""

    @property
    def federated_bundles(self) -> Mapping[str, bytes]:
        """Bundles of other trust domains by the SPIFFE ID of the trust domain."""


@dataclass(frozen=True, slots=True)
class OfferedSvid:
    """An SVID with the hint for its use, which may be empty."""

    svid: X509Svid
    hint: str


@dataclass(frozen=True, slots=True)
class Update:
    """The validated content of one message: at least one SVID, the default one first, and all bundles."""

    svids: tuple[OfferedSvid, ...]
    bundles: BundleSet

    def select(self, hint: str | None) -> X509Svid:
        """The first SVID with this hint, or the default one; :class:`NoOwnSvid` lists the hints if none matches."""
        for offered in self.svids:
            if hint is None or offered.hint == hint:
                return offered.svid
        raise NoOwnSvid(defect=f"none has the hint {hint!r}; {_hints(self.svids)}")


def _hints(offered: tuple[OfferedSvid, ...]) -> str:
    """List the hints, at most a few and shortened."""
    hints = sorted({each.hint for each in offered if each.hint})
    shown = ", ".join(repr(each[:_HINT_SHOWN]) for each in hints[:_HINTS_SHOWN])
    if not hints:
        return f"{len(offered)} without a hint {'is' if len(offered) == 1 else 'are'} there"
    return f"there are {shown}{f' and {len(hints) - _HINTS_SHOWN} more' if len(hints) > _HINTS_SHOWN else ''}"


def read_update(message: UpdateMessage, now: datetime, *, trust_domain: TrustDomain | None = None) -> Update:
    """
    Validate an ``X509SVIDResponse``.

    One invalid part refuses the whole: half an update would mix two states of the trust domain.

    Args:
        message: the message.
        now: the time of the verification, aware.
        trust_domain: the trust domain of the default SVID, or None for any.

    Raises:
        NoOwnSvid: it gives this process no identity of the trust domain.
        UpdateRejected: with ``defect`` naming the first broken rule.
    """
    messages = list(message.svids)
    if not messages:
        raise NoOwnSvid(defect="it has no SVID")
    if len(messages) > MAX_SVIDS or len(message.federated_bundles) > MAX_FEDERATED:
        raise UpdateRejected(defect=f"it has more than {MAX_SVIDS} SVIDs or {MAX_FEDERATED} federated bundles")
    offered = tuple(_read_svid(each) for each in messages)
    own = _own_bundles(offered, messages)
    bundles = BundleSet.of(*_federated(message.federated_bundles, own), *own.values())
    for each in offered:
        try:
            verify_svid(each.svid.chain, bundles, now)
        except SvidInvalid as error:
            raise UpdateRejected(defect=f"{each.svid.spiffe_id}: {error}") from error
    default = offered[0].svid.spiffe_id
    if trust_domain is not None and default.trust_domain != trust_domain:
        raise NoOwnSvid(defect=f"the SVID is {default}, not of trust domain {trust_domain}")
    return Update(offered, bundles)


def _read_svid(message: SvidMessage) -> OfferedSvid:
    try:
        svid = X509Svid.parse(message.x509_svid, message.x509_svid_key)
    except SvcError as error:
        raise UpdateRejected(defect=str(error)) from error
    if str(svid.spiffe_id) != message.spiffe_id:
        raise UpdateRejected(defect=f"the message names {message.spiffe_id!r}, the certificate {svid.spiffe_id}")
    return OfferedSvid(svid, message.hint)


def _own_bundles(offered: tuple[OfferedSvid, ...], messages: list[SvidMessage]) -> dict[TrustDomain, X509Bundle]:
    bundles: dict[TrustDomain, X509Bundle] = {}
    for each, message in zip(offered, messages, strict=True):
        trust_domain = each.svid.spiffe_id.trust_domain
        bundle = _read_bundle(trust_domain, message.bundle)
        if bundles.setdefault(trust_domain, bundle) != bundle:
            raise UpdateRejected(defect=f"two different bundles for {trust_domain}")
    return bundles


def _federated(messages: Mapping[str, bytes], own: Mapping[TrustDomain, X509Bundle]) -> list[X509Bundle]:
    bundles: dict[TrustDomain, X509Bundle] = {}
    for name, der in messages.items():
        trust_domain = _trust_domain(name)
        if trust_domain in bundles or trust_domain in own:
            raise UpdateRejected(defect=f"a second bundle for {trust_domain}")
        bundles[trust_domain] = _read_bundle(trust_domain, der)
    return list(bundles.values())


def _trust_domain(name: str) -> TrustDomain:
    # The key is the SPIFFE ID of the trust domain, without a path.
    try:
        spiffe_id = SpiffeID.parse(name)
    except SpiffeIdMalformed as error:
        raise UpdateRejected(defect=f"a federated bundle is named {name!r}") from error
    if spiffe_id.path:
        raise UpdateRejected(defect=f"a federated bundle is named {name!r}, with a path")
    return spiffe_id.trust_domain


def _read_bundle(trust_domain: TrustDomain, der: bytes) -> X509Bundle:
    try:
        return X509Bundle.parse_der(trust_domain, der)
    except BundleMalformed as error:
        raise UpdateRejected(defect=f"bundle of {trust_domain}: {error}") from error
