"""
A peer: its object ``SvcForeignCluster`` and what it served in, what is pinned and the status out. Pure.

What is pinned is in the status, so that a manager that starts goes on from it. A peer is pinned by the package of its
object, or by the one that was fetched and has the fingerprint of its object; afterwards a package counts only by the
rule of :mod:`svc.federation.succession`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from svc import naming
from svc.envelope.errors import EnvelopeError, Malformed
from svc.errors import SvcError
from svc.federation.continuity import Continuity, Poll, after_poll, poll_of
from svc.federation.endpoint import Endpoint
from svc.federation.errors import PackageRefused
from svc.federation.importing import check_import
from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.reference import ExpectedPeer
from svc.federation.succession import check_follows
from svc.identity import TrustDomain
from svc.kube.client import Object
from svc.kube.status import with_condition
from svc.kube.times import from_time, to_time

_Condition = tuple[Literal["True", "False", "Unknown"], str, str]
_WAITING: Final[_Condition] = ("Unknown", "NotPolled", "the peer has not been asked yet")


class PeerDuplicate(SvcError):
    """{trust_domain} is the trust domain of the SvcForeignCluster {name} already"""

    reason = "peer_duplicate"
    hint = "delete one of both; to replace what is pinned, give the first one another package and a rebootstrap token"


class EndpointUnresolved(SvcError):
    """nobody says where the peer {trust_domain} is"""

    reason = "endpoint_unresolved"
    hint = "set spec.m2mEndpoint to host:port: its package has no endpoint"


class PeerUnspecified(SvcError):
    """nothing says by which roots {trust_domain} is known"""

    reason = "peer_unspecified"
    hint = "set spec.bootstrapPackage, or both spec.expectedFingerprint and spec.m2mEndpoint"


@dataclass(frozen=True)
class Pinned:
    """
    What is known of a peer; it is kept in the status of its object.

    Attributes:
        package: the package that is trusted.
        token: of the last rebootstrap; empty before the first one.
        last_success: when the peer was last verified; None before.
    """

    package: VerifiedPackage
    continuity: Continuity = Continuity.WORKING
    token: str = ""
    last_success: datetime | None = None


@dataclass(frozen=True)
class Served:
    """
    What came of a poll.

    Attributes:
        package: what the peer serves; None where nothing was received, or it was refused by itself.
        links: packages on the way to it, by their sequence.
        error: why there is no package, None where there is one; an ``EnvelopeError`` where one was received.
    """

    package: VerifiedPackage | None = None
    links: Mapping[int, VerifiedPackage] = field(default_factory=dict)
    error: SvcError | None = None


@dataclass(frozen=True)
class Judged:
    """What is pinned after a poll, and why the served package was not taken; None where it was."""

    pinned: Pinned
    error: SvcError | None = None


def duplicates(objects: Iterable[Object]) -> dict[str, PeerDuplicate]:
    """Return why objects do not count, by their UIDs: of each trust domain the oldest one counts alone."""
    first: dict[str, str] = {}
    found: dict[str, PeerDuplicate] = {}
    for each in sorted(objects, key=_made):
        name, trust_domain = each["metadata"]["name"], each["spec"]["trustDomain"]
        if first.setdefault(trust_domain, name) != name:
            found[each["metadata"]["uid"]] = PeerDuplicate(trust_domain=trust_domain, name=first[trust_domain])
    return found


class PinnedReader:
    """Reads what objects have pinned; of each one a package is verified when it is another one than before."""

    def __init__(self) -> None:
        #: By the UID of the object: the data of its status, and the package.
        self._known: dict[str, tuple[str, VerifiedPackage]] = {}

    def read(self, found: Object) -> Pinned | None:
        """See :func:`read_pinned`."""
        uid = found["metadata"]["uid"]

        def verify(data: bytes) -> VerifiedPackage:
            text, known = found["status"]["pinned"]["data"], self._known.get(uid)
            if known is None or known[0] != text:
                known = self._known[uid] = text, verify_package(data)
            return known[1]

        return read_pinned(found, verify)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other objects."""
        self._known = {uid: each for uid, each in self._known.items() if uid in uids}


def read_pinned(found: Object, verify: Callable[[bytes], VerifiedPackage] = verify_package) -> Pinned | None:
    """Read what the status of an object has pinned; None where there is nothing, or no valid package."""
    status = found.get("status") or {}
    try:
        data = base64.b64decode(status["pinned"]["data"], validate=True)
        return Pinned(
            verify(data),
            Continuity(status["continuity"]),
            status.get("observedRebootstrapToken", ""),
            from_time(status.get("lastSuccess")),
        )
    except (KeyError, ValueError, SvcError):
        return None


def awaits_package(found: Object, pinned: Pinned | None) -> bool:
    """Whether something is to be pinned and the object does not have it: the package has to be fetched."""
    return _asks(found, pinned) and "bootstrapPackage" not in found["spec"]


def pin(
    found: Object, pinned: Pinned | None, own: TrustDomain, now: datetime, fetched: VerifiedPackage | None = None
) -> Pinned:
    """
    Pin what an object says, where nothing is pinned or its token asks for it.

    Args:
        found: the object.
        pinned: what is pinned; None for nothing.
        own: the own trust domain.
        now: aware.
        fetched: what came where :func:`awaits_package`; nobody has verified who served it.

    Returns:
        What is pinned from now on.

    Raises:
        SvcError: the package may not be pinned; what was pinned stays.
    """
    spec = found["spec"]
    asked = spec.get("rebootstrap") or {}
    token = asked.get("token", "")
    if pinned is not None and not _asks(found, pinned):
        return pinned
    expected = spec.get("expectedFingerprint")
    if "bootstrapPackage" in spec:
        package = _given(spec["bootstrapPackage"])
    elif fetched is not None and expected is not None:
        package = fetched
    else:
        raise PeerUnspecified(trust_domain=spec["trustDomain"])
    if package.content.trust_domain.name != spec["trustDomain"]:
        raise PackageRefused("wrong_trust_domain", found=package.content.trust_domain, expected=spec["trustDomain"])
    check_import(
        package,
        own=own,
        now=now,
        expected=None if expected is None else ExpectedPeer.parse(expected),
        existing=None if pinned is None else pinned.continuity,
        rebootstrap=True,
        force=bool(asked.get("force")),
    )
    return Pinned(package, Continuity.WORKING, token)


def endpoint_of(found: Object, package: VerifiedPackage | None) -> Endpoint:
    """
    Return where the peer is: what the object says, else the hint of its package; with a port.

    Raises:
        PackageRefused: what the object says is no endpoint (``bad_endpoint``).
        EndpointUnresolved: neither says it.
    """
    given = found["spec"].get("m2mEndpoint")
    try:
        endpoint = Endpoint.parse(given) if given is not None else None
    except ValueError as error:
        raise PackageRefused("bad_endpoint", text=given, defect=str(error)) from error
    if endpoint is None and package is not None:
        endpoint = package.package.endpoint
    if endpoint is None:
        raise EndpointUnresolved(trust_domain=found["spec"]["trustDomain"])
    return endpoint.with_port(naming.PORT_M2M_SERVICE)


def judge(pinned: Pinned, served: Served, now: datetime) -> Judged:
    """Return what is pinned after a poll, by the table of :mod:`svc.federation.continuity`."""
    error = served.error
    poll = poll_of(error) if isinstance(error, EnvelopeError) else Poll.UNREACHABLE
    package = pinned.package
    if served.package is not None:
        try:
            check_follows(package, served.package, now, served.links)
        except EnvelopeError as refused:
            error, poll = refused, poll_of(refused)
        else:
            error, poll, package = None, Poll.VERIFIED, served.package
    expired = now >= package.content.expires
    continuity = after_poll(pinned.continuity, poll, pinned_expired=expired)
    success = now if poll is Poll.VERIFIED else pinned.last_success
    return Judged(replace(pinned, package=package, continuity=continuity, last_success=success), error)


def peer_status(
    found: Object, judged: Judged | None, served: Served | None, refused: SvcError | None, now: datetime
) -> dict[str, Any]:
    """
    Return the status of a peer but for ``BundleSynced`` and ``nextPoll``, which are of who writes bundles and polls.

    Args:
        found: the object; the transitions of its conditions go on.
        judged: after the last poll; None where nothing is pinned.
        served: what came of it; None where there was none yet.
        refused: why a package was not pinned; None where it was, and where there was none yet.
    """
    conditions = (found.get("status") or {}).get("conditions") or []
    generation = found["metadata"].get("generation", 0)
    for name, condition in (
        ("PackageFetched", _fetched(served)),
        ("EndpointReachable", _reachable(served)),
        ("FingerprintMatched", _matched(judged, refused)),
        ("ContinuityVerified", _continuity(judged, served)),
    ):
        conditions = with_condition(conditions, name, *condition, now, generation=generation)
    status: dict[str, Any] = {"observedGeneration": generation, "conditions": conditions}
    if judged is not None:
        pinned = judged.pinned
        data = base64.b64encode(pinned.package.package.serialize()).decode("ascii")
        status |= {"continuity": pinned.continuity.value, "pinned": {**_described(pinned.package), "data": data}}
        pq = pinned.package.content.pq
        status["pq"] = {"sequence": pq.sequence, "roots": len(pq.bundle.anchors)}
        if pinned.token:
            status["observedRebootstrapToken"] = pinned.token
        if pinned.last_success is not None:
            status["lastSuccess"] = to_time(pinned.last_success)
    if served is not None and served.package is not None:
        status["served"] = _described(served.package)
    return status


def _asks(found: Object, pinned: Pinned | None) -> bool:
    token = (found["spec"].get("rebootstrap") or {}).get("token", "")
    return pinned is None or token not in ("", pinned.token)


def _given(text: str) -> VerifiedPackage:
    try:
        return verify_package(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise Malformed(where="spec.bootstrapPackage", defect="it is no base64") from error


def _made(found: Object) -> tuple[str, str]:
    return found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"]


def _described(package: VerifiedPackage) -> dict[str, Any]:
    content = package.content
    return {
        "fingerprint": content.fingerprint.grouped,
        "sequence": content.sequence,
        "issuedAt": to_time(content.issued),
        "notAfter": to_time(content.expires),
    }


def _fetched(served: Served | None) -> _Condition:
    if served is None:
        return _WAITING
    if served.package is not None:
        return "True", "Fetched", f"the peer serves sequence {served.package.content.sequence}"
    return "False", reason_word(served.error), str(served.error)


def _reachable(served: Served | None) -> _Condition:
    if served is None:
        return _WAITING
    if served.error is None or isinstance(served.error, EnvelopeError):
        return "True", "Reached", "the peer answers"
    return "False", reason_word(served.error), str(served.error)


def _matched(judged: Judged | None, refused: SvcError | None) -> _Condition:
    if refused is not None:
        return "False", reason_word(refused), str(refused)
    if judged is None:
        return "Unknown", "NotPinned", "nothing is pinned yet"
    return "True", "Pinned", f"the fingerprint is {judged.pinned.package.content.fingerprint}"


def _continuity(judged: Judged | None, served: Served | None) -> _Condition:
    if judged is None or served is None:
        return _WAITING
    state = judged.pinned.continuity
    if state is Continuity.WORKING:
        return "True", "Working", "the peer is the one that was pinned"
    return "False", state.value.capitalize(), str(judged.error or "as it was when the peer was last reached")


def reason_word(error: SvcError | None) -> str:
    """The reason of an error as one word in CamelCase."""
    return "Unknown" if error is None else "".join(each.capitalize() for each in error.reason.split("_"))
