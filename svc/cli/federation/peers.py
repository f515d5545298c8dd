"""
What the objects of a cluster say about federation, and the object that is written for a peer.

Pure: objects, flags and packages in; objects and refusals out.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from svc import naming
from svc.cli.errors import ClusterNotFederated, FederationRefused
from svc.envelope.errors import EnvelopeError
from svc.errors import printable
from svc.federation.continuity import Continuity
from svc.federation.endpoint import Endpoint
from svc.federation.errors import PackageRefused
from svc.federation.fingerprint import Fingerprint
from svc.federation.package import BootstrapPackage, VerifiedPackage, verify_package
from svc.federation.reference import FederationReference
from svc.identity import TrustDomain

#: RFC 1123, as the API server takes it for the name of an object.
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")


@dataclass(frozen=True)
class OwnCluster:
    """
    What a cluster publishes about itself.

    Args:
        package: as the manager signed it.
        endpoints: where its manager was found to be reached, the best first.
        conditions: as they are in the status.
    """

    package: VerifiedPackage
    endpoints: tuple[Endpoint, ...]
    conditions: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> OwnCluster:
        """
        Read the object ``SvcCluster``.

        Raises:
            ClusterNotFederated: it has no package yet, or one that is not valid or not of the trust domain and the
                fingerprint of the status.
        """
        status = found.get("status") or {}
        conditions = tuple(each for each in status.get("conditions") or () if isinstance(each, Mapping))
        data = (status.get("bootstrapPackage") or {}).get("data")
        if not data:
            raise ClusterNotFederated(detail=_not_ready(conditions))
        try:
            package = verify_package(base64.b64decode(data, validate=True))
            endpoints = tuple(Endpoint.parse(each["address"]) for each in status.get("m2mEndpoints") or ())
        except (EnvelopeError, ValueError, LookupError, TypeError, binascii.Error) as error:
            raise ClusterNotFederated("cluster_status_invalid", detail=str(error)) from error
        content = package.content
        if status.get("trustDomain") != content.trust_domain.name:
            detail = f"its package is of the trust domain {content.trust_domain}"
            raise ClusterNotFederated("cluster_status_invalid", detail=detail)
        if status.get("fingerprint") not in (content.fingerprint.grouped, content.fingerprint.base32):
            detail = f"its package has the fingerprint {content.fingerprint.grouped}"
            raise ClusterNotFederated("cluster_status_invalid", detail=detail)
        return cls(package, endpoints, conditions)

    @property
    def trust_domain(self) -> TrustDomain:
        """The trust domain of the cluster."""
        return self.package.content.trust_domain

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of its federation roots."""
        return self.package.content.fingerprint

    def endpoint(self, given: Endpoint | None = None) -> Endpoint | None:
        """
        Return where peers reach the manager: what was given, else what was found, else the hint of the package.

        Args:
            given: of ``--endpoint-host``; without a port it has the one that was found.

        Raises:
            FederationRefused: ``endpoint_without_port``.
        """
        hint = self.package.package.endpoint
        found = next(iter(self.endpoints), hint)
        if given is None or given.port is not None:
            return given or found
        if found is None or found.port is None:
            raise FederationRefused("endpoint_without_port", host=given)
        return Endpoint(given.host, found.port)

    def check_live(self, live: VerifiedPackage) -> OwnCluster:
        """
        Return the same with the package that the manager serves now.

        Raises:
            FederationRefused: ``live_package_differs``: it is not of the fingerprint and the trust domain here.
        """
        found = live.content
        if (found.trust_domain, found.fingerprint) != (self.trust_domain, self.fingerprint):
            raise FederationRefused(
                "live_package_differs",
                found=f"{found.trust_domain}, {found.fingerprint.grouped}",
                expected=f"{self.trust_domain}, {self.fingerprint.grouped}",
            )
        return OwnCluster(live, self.endpoints, self.conditions)


@dataclass(frozen=True)
class Peer:
    """
    Whom a cluster is to trust.

    Args:
        package: None where the manager is to fetch it.
        compared: whether the fingerprint was told by a person, or is the only thing that is known.
    """

    trust_domain: TrustDomain
    fingerprint: Fingerprint
    endpoint: Endpoint | None
    package: BootstrapPackage | None = None
    compared: bool = True

    @classmethod
    def of_reference(cls, reference: FederationReference) -> Peer:
        """
        Return the peer that a reference names.

        Raises:
            FederationRefused: ``reference_without_endpoint``.
        """
        if reference.endpoint is None:
            raise FederationRefused("reference_without_endpoint", trust_domain=reference.trust_domain)
        return cls(reference.trust_domain, reference.fingerprint, reference.endpoint)

    @property
    def address(self) -> str | None:
        """Where its manager is reached, with a port: that of HTTPS where none is given."""
        return None if self.endpoint is None else str(self.endpoint.with_port(naming.PORT_M2M_SERVICE))

    def spec(self, *, token: str = "", force: bool = False) -> dict[str, Any]:
        """
        Return the ``spec`` of the object.

        Args:
            token: new for each time that the relationship is to begin anew; empty for never.
            force: whether it begins anew although it works.
        """
        spec: dict[str, Any] = {"trustDomain": self.trust_domain.name}
        if self.compared:
            spec["expectedFingerprint"] = self.fingerprint.grouped
        if self.address is not None:
            spec["m2mEndpoint"] = self.address
        if self.package is not None:
            spec["bootstrapPackage"] = base64.b64encode(self.package.serialize()).decode("ascii")
        if token:
            spec["rebootstrap"] = {"token": token, "force": force}
        return spec


@dataclass(frozen=True)
class Relationship:
    """
    The object of a peer, as far as it is there.

    Args:
        name: of the object that is there, or that is going to be made.
        there: whether it is there.
        pinned: the fingerprint that the manager has pinned; empty for none.
        continuity: None where nothing is pinned.
    """

    name: str
    there: bool = False
    pinned: str = ""
    continuity: Continuity | None = None

    @classmethod
    def find(cls, trust_domain: TrustDomain, objects: Sequence[Mapping[str, Any]], name: str = "") -> Relationship:
        """
        Find the object of a trust domain among all of its kind.

        Args:
            name: of ``--name``; where empty, that of the object that is there, else made of the trust domain.

        Raises:
            FederationRefused: ``name_unusable``, ``name_taken`` or ``peer_named_otherwise``.
        """
        own = [each for each in objects if each.get("spec", {}).get("trustDomain") == trust_domain.name]
        wanted = name or next((each["metadata"]["name"] for each in own), "") or object_name(trust_domain)
        check_name(wanted)
        for each in objects:
            if each["metadata"]["name"] == wanted and each not in own:
                other = printable(each.get("spec", {}).get("trustDomain"))
                raise FederationRefused("name_taken", name=wanted, other=other, trust_domain=trust_domain)
        if not own:
            return cls(wanted)
        found = next((each for each in own if each["metadata"]["name"] == wanted), None)
        if found is None:
            other = printable(own[0]["metadata"]["name"])
            raise FederationRefused("peer_named_otherwise", trust_domain=trust_domain, name=other)
        status = found.get("status") or {}
        pinned = str((status.get("pinned") or {}).get("fingerprint") or "")
        return cls(wanted, True, pinned, _continuity(status) if pinned else None)

    def follows(self, fingerprint: Fingerprint) -> bool:
        """Whether the pinned roots are those of a fingerprint."""
        return self.pinned in (fingerprint.grouped, fingerprint.base32)

    def change(self, peer: Peer) -> str:
        """Say what writing the object is: ``created``, ``unchanged``, or ``changed``, not pinned yet."""
        if not self.there:
            return "created"
        return "unchanged" if self.follows(peer.fingerprint) else "changed"

    def check_kept(self, peer: Peer) -> None:
        """
        Check that the object may be written and the relationship goes on.

        Raises:
            PackageRefused: ``already_federated``: other roots are pinned.
        """
        if self.continuity is not None and not self.follows(peer.fingerprint):
            raise PackageRefused("already_federated", trust_domain=peer.trust_domain, continuity=self.continuity.value)


def object_name(trust_domain: TrustDomain) -> str:
    """Make the name of the object of a trust domain: a DNS name, in which no ``_`` may be."""
    return trust_domain.name.replace("_", "-")


def check_name(name: str) -> None:
    """Check the name of an object; :class:`FederationRefused` ``name_unusable``."""
    if not _NAME.match(name):
        raise FederationRefused("name_unusable", name=printable(name))


def _continuity(status: Mapping[str, Any]) -> Continuity:
    """Read the continuity of a pinned peer; what is not known here does not count as working."""
    try:
        return Continuity(status.get("continuity"))
    except ValueError:
        return Continuity.UNVERIFIABLE


def _not_ready(conditions: Sequence[Mapping[str, Any]]) -> str:
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    if ready is None:
        return "the manager has published nothing yet"
    return printable(f"{ready.get('message')} ({ready.get('reason')})")
