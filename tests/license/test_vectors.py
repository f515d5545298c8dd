"""The vectors of licenses: each file gives the state, and the reason, of its ``expect`` line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.identity import TrustDomain
from svc.license.errors import LicenseRefused
from svc.license.states import Assessment, LicenseState, assess, refused
from svc.license.verification import read_unverified, verify_license
from svc.testing.vectors import Vector, load_vectors
from tests.license.material import KEYS

FOLDER: Final = Path(__file__).parent.parent / "vectors" / "license"
HEADERS: Final = frozenset({"now", "keys", "pad-to", "trust-domain", "usage", "latest-seen"})
#: Reasons that the envelope of a license gives.
ENVELOPE: Final = frozenset(
    {
        "malformed",
        "too_large",
        "wrong_type",
        "critical_unknown",
        "alg_not_allowed",
        "set_mismatch",
        "unsupported_version",
        "signature_invalid{Ed25519}",
        "signature_invalid{ML-DSA-87}",
    }
)


def file_of(vector: Vector) -> bytes:
    """The file, filled up with text before the license."""
    data = vector.section("file")
    missing = int(vector.headers.get("pad-to", 0)) - len(data)
    return b"x" * (missing - 1) + b"\n" + data if missing > 0 else data


def assessment_of(vector: Vector) -> Assessment:
    """The state of the license in a vector."""
    wanted = {"released": (False,), "none": (True,)}.get(vector.headers.get("keys", ""), (False, True))
    keys = [key for key in KEYS if key.test in wanted]
    domain, usage = vector.headers.get("trust-domain"), vector.headers.get("usage", "")
    try:
        verified = verify_license(file_of(vector), keys)
    except EnvelopeError as error:
        return refused(error)
    return assess(
        verified,
        vector.moment(),
        trust_domain=None if domain is None else TrustDomain.parse(domain),
        usage={name: int(used) for name, used in (each.split("=") for each in usage.split(",") if each)},
        latest_seen=vector.moment("latest-seen") if "latest-seen" in vector.headers else None,
    )


class LicenseVectorTests(SynchronousTestCase):
    """The files below ``tests/vectors/license``."""

    maxDiff = None

    def setUp(self) -> None:
        """Read them."""
        self.vectors = load_vectors(FOLDER, headers=HEADERS, kinds={"file"})

    def test_each(self) -> None:
        """Each vector gives what it expects."""
        wrong = []
        for vector in self.vectors:
            found = assessment_of(vector)
            shown = f"{found.state.value} {found.reason}".rstrip()
            if shown != vector.expect:
                wrong.append(f"{vector.name}: expected {vector.expect}, got {shown}")
        self.assertEqual(wrong, [])

    def test_complete(self) -> None:
        """Each reason of the format, and each state of one license, has a vector."""
        expected = {vector.expect for vector in self.vectors}
        states = {state.value for state in LicenseState} - {"Invalid", "Missing"}
        self.assertEqual(states - expected, set())
        # The last one is about a Secret with the name of a license, and not about a license.
        reasons = (ENVELOPE | set(LicenseRefused.reasons)) - {"license_secret_other"}
        self.assertEqual(reasons - {each.removeprefix("Invalid ") for each in expected}, set())
        self.assertTrue(all(vector.comment for vector in self.vectors))

    def test_refused_licenses_can_be_looked_at(self) -> None:
        """Of a refused license as much is read as can be, and of one that is accepted everything."""
        for vector in self.vectors:
            shown = read_unverified(file_of(vector))
            if not vector.expect.startswith("Invalid"):
                assert shown.license is not None, vector.name
                self.assertEqual(shown.license, verify_license(file_of(vector), KEYS).license)
                self.assertEqual(set(shown.algorithms), {"Ed25519", "ML-DSA-87"})
            elif vector.expect.startswith("Invalid signature_invalid"):
                self.assertIsNotNone(shown.license, vector.name)
            elif vector.expect in ("Invalid license_cut", "Invalid license_not_found"):
                self.assertEqual((shown.text, shown.claims, shown.license), (None, None, None))
