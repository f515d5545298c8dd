"""The vectors of packages and references: each file gives the result of its ``expect`` line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError, detail_reason
from svc.errors import SvcError
from svc.federation.continuity import Continuity, after_poll, poll_of
from svc.federation.errors import PackageRefused, ReferenceRefused
from svc.federation.fingerprint import Fingerprint
from svc.federation.importing import check_import
from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.reference import ExpectedPeer, FederationReference
from svc.federation.succession import check_follows
from svc.identity import TrustDomain
from svc.testing.vectors import Vector, load_vectors

FOLDER: Final = Path(__file__).parent.parent / "vectors" / "federation"
HEADERS: Final = frozenset(
    {"kind", "now", "fingerprint", "ssh", "digits", "own", "expected", "existing", "options", "canonical"}
)
KINDS: Final = frozenset({"package", "pinned", "served", "link", "reference", "text"})
#: Reasons that the envelope of a package gives.
ENVELOPE: Final = frozenset(
    {
        "malformed",
        "too_large",
        "wrong_type",
        "critical_unknown",
        "alg_not_allowed",
        "set_mismatch",
        "hybrid_incomplete",
        "unsupported_version",
        "signature_invalid{Ed25519}",
        "signature_invalid{ML-DSA-65}",
    }
)


def vectors() -> list[Vector]:
    """All of them."""
    return load_vectors(FOLDER, headers=HEADERS, kinds=KINDS)


def package_result(vector: Vector) -> str:
    """Verify a package, and compare its fingerprint with the spellings that the vector has."""
    found = verify_package(vector.section("package")).content.fingerprint
    shown = {"fingerprint": found.base32, "ssh": found.ssh, "digits": found.digits}
    return "ok" if all(vector.headers.get(name, text) == text for name, text in shown.items()) else "other"


def import_result(vector: Vector) -> str:
    """Import a package."""
    headers: Mapping[str, str] = vector.headers
    options = headers.get("options", "").split(",")
    check_import(
        verify_package(vector.section("package")),
        own=TrustDomain.parse(headers["own"]),
        now=vector.moment(),
        expected=ExpectedPeer.parse(headers["expected"]) if "expected" in headers else None,
        existing=Continuity(headers["existing"]) if "existing" in headers else None,
        rebootstrap="rebootstrap" in options,
        force="force" in options,
    )
    return "ok"


def succession_result(vector: Vector) -> str:
    """Poll a peer once; the continuity after it, and the reason where it was refused."""
    now, error = vector.moment(), None
    pinned = verify_package(vector.section("pinned"))
    try:
        links = {int(name): verify_package(data) for name, data in vector.labelled("link").items()}
        check_follows(pinned, verify_package(vector.section("served")), now, links)
    except EnvelopeError as refused:
        error = refused
    expired = error is not None and now >= pinned.content.expires
    state = after_poll(Continuity.WORKING, poll_of(error), pinned_expired=expired)
    return f"{state.value} {'' if error is None else error.detail_reason}".rstrip()


def reference_result(vector: Vector) -> str:
    """Read a reference; one that is marked as canonical is written as it was."""
    text = vector.section("reference").decode()
    found = FederationReference.parse(text)
    if "canonical" in vector.headers and str(found) != text:
        return str(found)
    return "ok" if FederationReference.parse(str(found)) == found else "other"


def fingerprint_result(vector: Vector) -> str:
    """Read what a person expects, and compare it."""
    expected = ExpectedPeer.parse(vector.section("text").decode())
    found = Fingerprint.from_base32(vector.headers["fingerprint"])
    return "ok" if expected.fingerprint.matches(found) else "mismatch"


RESULTS: Final = {
    "package": package_result,
    "import": import_result,
    "succession": succession_result,
    "reference": reference_result,
    "fingerprint": fingerprint_result,
}


class FederationVectorTests(SynchronousTestCase):
    """The files below ``tests/vectors/federation``."""

    maxDiff = None

    def test_each(self) -> None:
        """Each vector gives what it expects."""
        wrong = []
        for vector in vectors():
            try:
                found = RESULTS[vector.headers["kind"]](vector)
            except SvcError as error:
                found = detail_reason(error)
            if found != vector.expect:
                wrong.append(f"{vector.name}: expected {vector.expect}, got {found}")
        self.assertEqual(wrong, [])

    def test_complete(self) -> None:
        """Each reason has a vector, and each state."""
        expected = {word for vector in vectors() for word in vector.expect.split(" ")}
        states = {each.value for each in Continuity}
        reasons = ENVELOPE | set(PackageRefused.reasons) | set(ReferenceRefused.reasons) | states
        self.assertEqual(reasons - expected, set())
        self.assertTrue(all(vector.comment for vector in vectors()))

    def test_packages_survive_being_written(self) -> None:
        """A verified package is written as it was read, but for white space."""
        checked = 0
        for vector in vectors():
            if vector.headers["kind"] == "package" and vector.expect == "ok":
                found = verify_package(vector.section("package"))
                again = verify_package(found.package.serialize())
                self.assertEqual(again, found, vector.name)
                self.assertIsInstance(again, VerifiedPackage)
                checked += 1
        self.assertGreater(checked, 10)
