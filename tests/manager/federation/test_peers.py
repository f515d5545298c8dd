"""What is pinned of a peer, and its status."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.errors import SvcError
from svc.federation.continuity import Continuity
from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage
from svc.manager.federation.peers import (
    Judged,
    Pinned,
    Served,
    awaits_package,
    duplicates,
    endpoint_of,
    judge,
    peer_status,
    pin,
    read_pinned,
)
from tests.federation.material import DAY, ENDPOINT, PARTNER, PROD, signed
from tests.vectors.material import NOW

LATER = timedelta(seconds=1)
AWAY = Served(error=SvcError())


def peer(package: VerifiedPackage | None = None, *, status: Any = None, **spec: Any) -> dict[str, Any]:
    """The object of a peer."""
    data = base64.b64encode((package or signed()).package.serialize()).decode()
    given = {"trustDomain": PROD.name, "bootstrapPackage": data, **spec}
    return {"metadata": {"name": "prod", "generation": 3}, "spec": given, "status": status or {}}


def named(**spec: Any) -> dict[str, Any]:
    """The object of a peer without its package."""
    return {"metadata": {"name": "prod", "generation": 3}, "spec": {"trustDomain": PROD.name, **spec}, "status": {}}


def pinned(**more: Any) -> Pinned:
    """The first package, as it is pinned."""
    return Pinned(signed(), **more)


class PinTests(SynchronousTestCase):
    """What an object pins."""

    def pinned(self, found: dict[str, Any], before: Pinned | None = None, **more: Any) -> Pinned:
        """Pin at a time."""
        return pin(found, before, more.get("own", PARTNER), more.get("now", NOW), more.get("fetched"))

    def refused(self, wanted: str, found: dict[str, Any], before: Pinned | None = None, **more: Any) -> None:
        """Pin what is refused for a reason."""
        with self.assertRaises(SvcError) as caught:
            self.pinned(found, before, **more)
        self.assertEqual(wanted, caught.exception.reason)

    def test_first(self) -> None:
        """The package of the object, with the fingerprint in any spelling or none."""
        fingerprint = signed().content.fingerprint
        for spelled in (
            None,
            fingerprint.grouped,
            fingerprint.ssh,
            fingerprint.digits,
            str(signed().package.reference),
        ):
            more: dict[str, Any] = {} if spelled is None else {"expectedFingerprint": spelled}
            found = self.pinned(peer(**more))
            self.assertEqual((signed().content, Continuity.WORKING), (found.package.content, found.continuity))

    def test_refused(self) -> None:
        """The rules of an import hold for objects too."""
        self.refused("own_trust_domain", peer(), own=PROD)
        self.refused("wrong_trust_domain", peer(trustDomain=PARTNER.name), own=PARTNER)
        self.refused("fingerprint_mismatch", peer(expectedFingerprint=signed(2).content.fingerprint.grouped))
        self.refused("bad_fingerprint", peer(expectedFingerprint="k7q4"))
        self.refused("package_expired", peer(), now=NOW + 30 * DAY)
        self.refused("malformed", peer(bootstrapPackage=base64.b64encode(b"{}").decode()))
        self.refused("malformed", peer(bootstrapPackage="!"))

    def test_afterwards(self) -> None:
        """What is pinned stays, whatever the object says then, until its token asks."""
        before = pinned(token="t")
        other = signed(2)
        self.assertIs(before, self.pinned(peer(other), before))
        self.assertIs(before, self.pinned(peer(other, rebootstrap={"token": "t", "force": True}), before))

    def test_rebootstrap(self) -> None:
        """A new token replaces what does not work, and with force what does; a refused one leaves what was pinned."""
        other, token = signed(2), {"token": "u"}
        self.refused("continuity_working", peer(other, rebootstrap=token), pinned(token="t"))
        forced = self.pinned(peer(other, rebootstrap={**token, "force": True}), pinned(token="t"))
        for found in (forced, self.pinned(peer(other, rebootstrap=token), pinned(continuity=Continuity.BROKEN))):
            self.assertEqual(
                (2, "u", Continuity.WORKING), (found.package.content.sequence, found.token, found.continuity)
            )

    def test_fetched(self) -> None:
        """A package that was fetched is pinned by the expected fingerprint and trust domain alone."""
        package, other = signed(), signed(2)
        found = named(expectedFingerprint=package.content.fingerprint.digits)
        self.assertTrue(awaits_package(found, None))
        self.assertFalse(awaits_package(peer(), None))
        self.assertIs(package, self.pinned(found, fetched=package).package)
        self.refused("fingerprint_mismatch", found, fetched=other)
        self.refused("wrong_trust_domain", found, fetched=signed(trust_domain=PARTNER), own=PARTNER)
        self.refused("own_trust_domain", found, fetched=package, own=PROD)
        self.refused("package_expired", found, fetched=package, now=NOW + 30 * DAY)
        self.refused("peer_unspecified", found)
        self.refused("peer_unspecified", named(), fetched=package)

    def test_fetched_given(self) -> None:
        """The package of the object stands above one that was fetched."""
        self.assertEqual(2, self.pinned(peer(signed(2)), fetched=signed()).package.content.sequence)

    def test_fetched_rebootstrap(self) -> None:
        """What is pinned by a reference is fetched anew for a new token alone."""
        second = signed(2)
        spec = {"expectedFingerprint": second.content.fingerprint.grouped}
        before = pinned(token="t", continuity=Continuity.BROKEN)
        self.assertFalse(awaits_package(named(**spec), before))
        self.assertFalse(awaits_package(named(rebootstrap={"token": "t"}, **spec), before))
        found = named(rebootstrap={"token": "u"}, **spec)
        self.assertTrue(awaits_package(found, before))
        self.assertEqual(
            ("u", 2), ((after := self.pinned(found, before, fetched=second)).token, after.package.content.sequence)
        )
        self.refused("continuity_working", found, pinned(token="t"), fetched=second)

    def test_endpoint(self) -> None:
        """What the object says stands above the hint of the package; without a port it is that of HTTPS."""
        for package in (None, signed()):
            with self.assertRaises(SvcError) as caught:
                endpoint_of(peer(), package)
            self.assertEqual("endpoint_unresolved", caught.exception.reason)
        hinted = signed().package.with_endpoint(ENDPOINT).verify()
        self.assertEqual(ENDPOINT, endpoint_of(peer(), hinted))
        self.assertEqual(Endpoint("a.example.org", 1), endpoint_of(peer(m2mEndpoint="a.example.org:1"), hinted))
        portless = signed().package.with_endpoint(Endpoint("a.example.org")).verify()
        self.assertEqual(Endpoint("a.example.org", 443), endpoint_of(peer(), portless))
        with self.assertRaisesRegex(SvcError, "https://a"):
            endpoint_of(peer(m2mEndpoint="https://a"), hinted)


class DuplicatesTests(SynchronousTestCase):
    """Several objects of one trust domain."""

    def test_oldest_counts(self) -> None:
        """The others are named with the one that counts."""

        def named(name: str, made: str, trust_domain: str = PROD.name) -> dict[str, Any]:
            metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": made}
            return {"metadata": metadata, "spec": {"trustDomain": trust_domain}}

        second, first, same = named("a", "2026-01-02"), named("b", "2026-01-01"), named("c", "2026-01-02")
        found = duplicates([second, first, same, named("d", "2026-01-03", PARTNER.name)])
        self.assertEqual({"uid-a": "b", "uid-c": "b"}, {uid: each.evidence["name"] for uid, each in found.items()})


class JudgeTests(SynchronousTestCase):
    """What becomes of a poll."""

    def state(self, judged: Judged) -> tuple[Continuity, int, str | None]:
        """The continuity, the pinned sequence and the reason."""
        error = judged.error
        reason = None if error is None else error.reason
        return judged.pinned.continuity, judged.pinned.package.content.sequence, reason

    def test_polls(self) -> None:
        """Who follows is pinned; all else leaves what is pinned, and says why."""
        now = NOW + LATER
        later, introduced = signed(issued=now), signed(2, introduced=True, issued=now)
        for served, wanted in (
            (Served(later), (Continuity.WORKING, 1, None)),
            (Served(introduced), (Continuity.WORKING, 2, None)),
            (Served(signed(2, issued=now), {2: introduced}), (Continuity.WORKING, 2, None)),
            (Served(signed(2, issued=now)), (Continuity.UNVERIFIABLE, 1, "packages_missing")),
            (Served(signed(issued=NOW - LATER)), (Continuity.BROKEN, 1, "package_rolled_back")),
            (Served(signed(trust_domain=PARTNER)), (Continuity.BROKEN, 1, "wrong_trust_domain")),
            (
                Served(error=EnvelopeError("unsupported_version", found=2, supported=1)),
                (Continuity.UNVERIFIABLE, 1, "unsupported_version"),
            ),
            (AWAY, (Continuity.WORKING, 1, AWAY.error and AWAY.error.reason)),
        ):
            self.assertEqual(wanted, self.state(judge(pinned(), served, now)))

    def test_away_for_long(self) -> None:
        """A peer that is away keeps its state until the pinned package has ended, and works again when it is back."""
        now = NOW + 30 * DAY
        broken = judge(pinned(continuity=Continuity.BROKEN), AWAY, now - LATER).pinned
        self.assertEqual(Continuity.BROKEN, broken.continuity)
        expired = judge(broken, AWAY, now).pinned
        self.assertEqual((Continuity.EXPIRED, None), (expired.continuity, expired.last_success))
        back = judge(expired, Served(signed(issued=now)), now).pinned
        self.assertEqual((Continuity.WORKING, now), (back.continuity, back.last_success))


class StatusTests(SynchronousTestCase):
    """The status of the object."""

    def test_kept(self) -> None:
        """What is pinned is read again from the status as it was written."""
        served = Served(signed(issued=NOW + LATER))
        judged = judge(pinned(token="t"), served, NOW + LATER)
        status = peer_status(peer(), judged, served, None, NOW + LATER)
        again = read_pinned(peer(status=status))
        assert again is not None
        self.assertEqual(judged.pinned.package.content, again.package.content)
        self.assertEqual(("t", Continuity.WORKING, NOW + LATER), (again.token, again.continuity, again.last_success))
        self.assertEqual({"True"}, {each["status"] for each in status["conditions"]})
        self.assertEqual({"sequence": 3, "roots": 0}, status["pq"])

    def test_unreadable(self) -> None:
        """A status without a valid package pins nothing."""
        for wrong in ({}, {"continuity": "working"}, {"continuity": "other", "pinned": {"data": "e30="}}):
            self.assertIsNone(read_pinned(peer(status=wrong)))
        self.assertIsNone(read_pinned({"metadata": {}, "spec": {}}))

    def test_conditions(self) -> None:
        """Each says what it is about."""

        def conditions(*given: Any) -> dict[str, tuple[str, str]]:
            judged, served, refused = given
            status = peer_status(peer(), judged, served, refused, NOW)
            return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}

        refused = EnvelopeError("unsupported_version", found=2, supported=1)
        rolled_back = Served(signed(issued=NOW - LATER))
        self.assertEqual(
            {
                "PackageFetched": ("Unknown", "NotPolled"),
                "EndpointReachable": ("Unknown", "NotPolled"),
                "FingerprintMatched": ("False", "UnsupportedVersion"),
                "ContinuityVerified": ("Unknown", "NotPolled"),
            },
            conditions(None, None, refused),
        )
        self.assertEqual(
            {
                "PackageFetched": ("True", "Fetched"),
                "EndpointReachable": ("True", "Reached"),
                "FingerprintMatched": ("True", "Pinned"),
                "ContinuityVerified": ("False", "Broken"),
            },
            conditions(judge(pinned(), rolled_back, NOW), rolled_back, None),
        )
        unreadable = Served(error=refused)
        found = conditions(judge(pinned(), unreadable, NOW), unreadable, None)
        self.assertEqual(("False", "UnsupportedVersion"), found["PackageFetched"])
        self.assertEqual(("True", "Reached"), found["EndpointReachable"])
        self.assertEqual(("False", "Unverifiable"), found["ContinuityVerified"])
        self.assertEqual("False", conditions(judge(pinned(), AWAY, NOW), AWAY, None)["EndpointReachable"][0])
