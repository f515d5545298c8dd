"""
Federation by bootstrap packages: what the authority gives to others, and what it takes from the packages of peers.

The roots of a peer go where those of federated files go: into the bundles of the Workload API, and into the PQ bundle.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from svc.authority.bundlefile import REFRESH_HINT, bundle_keys, read_jwt_keys
from svc.authority.config import AuthoritySettings
from svc.authority.domain import ForeignDomain, LocalDomain
from svc.authority.keyfile import KeyFile, KeysRefused
from svc.authority.peers import ImportResult, PeerRefused, Peers, continuity, judge_import
from svc.authority.report import AuthorityLog
from svc.envelope.claims import utc_seconds
from svc.errors import SvcError
from svc.federation.errors import PackageRefused
from svc.federation.package import VerifiedPackage, sign_package, verify_package
from svc.federation.payload import LIFETIME, Chain, M2MEndpoint, PackageContent, PeerBundle
from svc.federation.reference import ExpectedPeer, FederationReference
from svc.federation.rootkeys import RootKeys, RootKeysInvalid
from svc.identity import SpiffeID, TrustDomain
from svc.pqissuer.roots import PqRootRing
from svc.strictjson import dumps, loads_object

KEYS: Final = "federation.json"
M2M_PATH: Final = "/svc/m2m"


def open_root_keys(file: KeyFile, trust_domain: TrustDomain) -> tuple[RootKeys, bool]:
    """
    Read the federation root keys, or make and store them; returns whether they were made, too.

    Raises:
        KeysRefused: the file is open to others, damaged, or of another trust domain.
        KeysNotStored: new keys cannot be written.
    """
    data = file.read(KEYS)
    if data is None:
        keys = RootKeys.make()
        file.replace(keys.serialize(trust_domain), KEYS)
        return keys, True
    try:
        return RootKeys.parse(data, trust_domain), False
    except RootKeysInvalid as error:
        raise KeysRefused(path=f"{file.folder}/{KEYS}", defect=error.defect) from error


class Federating:
    """
    The packages of one authority.

    Args:
        keys: its federation root keys.
        peers: the pinned packages, which have been read.
        now: the clock.
        changed: called after roots of a peer have changed.
    """

    def __init__(
        self,
        settings: AuthoritySettings,
        keys: RootKeys,
        peers: Peers,
        domain: LocalDomain,
        pq: PqRootRing,
        report: AuthorityLog,
        now: Callable[[], datetime],
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._own = settings.trustDomain
        self._keys = keys
        self._peers = peers
        self._domain = domain
        self._pq = pq
        self._report = report
        self._now = now
        self._changed = changed

    def begin(self) -> None:
        """
        Trust the roots of all pinned packages.

        Raises:
            PeerRefused: the configuration federates with one of them by files.
        """
        for package in self._peers.packages.values():
            self._check_configured(package.content.trust_domain)
            self._trust(package.content)

    def export(self) -> bytes:
        """Sign a package now; the JSON answer."""
        package = sign_package(self._content(self._now()), self._keys.signers).package
        return dumps({"package": loads_object(package.serialize()), "rootsUntil": utc_seconds(self._roots_until())})

    def import_package(self, data: bytes, *, expected: str, rebootstrap: bool, force: bool) -> bytes:
        """
        Pin a package, and trust its roots from now on; the JSON answer.

        Args:
            data: the package.
            expected: a fingerprint in any spelling, or a reference; empty for none.
            rebootstrap: whether a package may be replaced that has ended.
            force: whether any may be.

        Raises:
            SvcError: it is refused or cannot be stored; nothing has changed.
        """
        peer = ExpectedPeer.parse(expected) if expected else None
        found = verify_package(data)
        trust_domain = found.content.trust_domain
        self._check_configured(trust_domain)
        before = self._peers.packages.get(trust_domain)
        if before is not None and found.package.endpoint is None:
            # The hint is no part of what is signed: the one that an administrator gave stays.
            found = VerifiedPackage(found.package.with_endpoint(before.package.endpoint))
        result = judge_import(
            before, found, own=self._own, now=self._now(), expected=peer, rebootstrap=rebootstrap, force=force
        )
        previous = None if before is None else before.content.fingerprint
        if result is not ImportResult.UNCHANGED:
            self._peers.pin(found)
            self._report.peer_pinned(found.content, previous, result.value)
            self._trust(found.content)
            self._changed()
        return dumps({"result": result.value, "previousFingerprint": None if previous is None else previous.grouped})

    def info(self) -> dict[str, object]:
        """Its reference, its fingerprint and its peers."""
        now, content = self._now(), self._content(self._now())
        return {
            "reference": str(FederationReference(self._own, content.fingerprint)),
            "trustDomain": self._own.name,
            "fingerprint": content.fingerprint.to_members(),
            "sequence": content.sequence,
            "rootsUntil": utc_seconds(self._roots_until()),
            "peers": [_peer(each, now) for _name, each in sorted(self._peers.packages.items())],
        }

    def ended(self, now: datetime) -> SvcError | None:
        """Why the relationship with a peer has to be renewed; None where all work."""
        for package in self._peers.packages.values():
            try:
                package.check_time(now)
            except PackageRefused as error:
                return error
        return None

    def _check_configured(self, trust_domain: TrustDomain) -> None:
        if any(each.trustDomain == trust_domain for each in self._settings.federatesWith):
            raise PeerRefused("federated_by_files", trust_domain=trust_domain)

    def _trust(self, content: PackageContent) -> None:
        jwt = read_jwt_keys(dumps(content.bundle.to_document()))
        if content.bundle.roots.anchors or jwt:
            self._domain.set_foreign(ForeignDomain(content.bundle.roots, jwt))
        else:
            self._domain.drop_foreign(content.trust_domain)
        self._pq.set_peer(content.pq.bundle, content.pq.sequence)

    def _content(self, now: datetime) -> PackageContent:
        issued = now.replace(microsecond=0)
        bundle, pq = self._domain.x509.bundle(), self._pq.bundles.entries[self._own]
        keys = tuple(bundle_keys(bundle, self._domain.jwt.bundle()))
        return PackageContent(
            issuer=self._settings.issuer_id,
            issued=issued,
            expires=issued + LIFETIME,
            trust_domain=self._own,
            sequence=1,
            roots=self._keys.roots,
            previous=None,
            chains=(
                Chain("x509-svid", (self._domain.x509.ring.active(now).key.certificate,)),
                Chain("svc-pq", (self._pq.issuer(now).certificate,)),
            ),
            bundle=PeerBundle(self._domain.sequence, REFRESH_HINT, keys, bundle),
            pq=pq,
            m2m=M2MEndpoint(SpiffeID(self._own, M2M_PATH)),
        )

    def _roots_until(self) -> datetime:
        """Until when nothing signs that is not in a package of now."""
        rings = (self._domain.x509.ring, self._domain.jwt.ring, self._pq.ring)
        return min(each.complete_until for each in rings)


def _peer(package: VerifiedPackage, now: datetime) -> dict[str, object]:
    content, endpoint = package.content, package.package.endpoint
    return {
        "trustDomain": content.trust_domain.name,
        "fingerprint": content.fingerprint.grouped,
        "sequence": content.sequence,
        "continuity": continuity(package, now).value,
        "expiresAt": utc_seconds(content.expires),
        "m2mEndpoint": None if endpoint is None else str(endpoint),
    }


def read_peers(file: KeyFile) -> Peers:
    """Read the pinned packages beside the keys; raises as :meth:`Peers.load`."""
    peers = Peers(file)
    peers.load()
    return peers


def begin_federation(
    settings: AuthoritySettings,
    peers: Peers,
    domain: LocalDomain,
    pq: PqRootRing,
    report: AuthorityLog,
    now: Callable[[], datetime],
    changed: Callable[[], None],
) -> Federating:
    """
    Read or make the federation root keys, and trust the peers; for the arguments see :class:`Federating`.

    Raises :func:`open_root_keys`'s errors and those of :meth:`Federating.begin`.
    """
    trust_domain = settings.trustDomain
    keys, made = open_root_keys(peers.file, trust_domain)
    if made:
        report.roots_begun(trust_domain, keys.roots.fingerprint(trust_domain))
    federating = Federating(settings, keys, peers, domain, pq, report, now, changed)
    federating.begin()
    return federating
