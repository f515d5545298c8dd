"""The payload of a license as values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.identity import TrustDomain
from svc.license.payload import MAX_DAYS, Enforcement, License, parse_instant
from svc.strictjson import b64u_encode
from tests.license.material import LICENSE

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
TIMES = st.integers(0, 200_000_000_000).map(lambda seconds: _EPOCH + timedelta(seconds=seconds))


@st.composite
def licenses(draw: st.DrawFn) -> License:
    """Any license."""
    days = st.integers(0, MAX_DAYS)
    begin = draw(TIMES)
    return License(
        id=b64u_encode(draw(st.binary(min_size=16, max_size=16))),
        issuer=draw(TEXTS),
        customer=draw(TEXTS),
        issued=draw(TIMES),
        not_before=begin,
        not_after=begin + timedelta(seconds=draw(st.integers(1, 10**9))),
        licensee=draw(TEXTS),
        edition=draw(TEXTS),
        features=tuple(draw(st.lists(TEXTS, max_size=3, unique=True))),
        limits=draw(st.dictionaries(TEXTS, st.integers(0, 2**53 - 1), max_size=3)),
        grace_days=draw(days),
        warn_days=tuple(sorted(draw(st.sets(days, max_size=4)), reverse=True)),
        maintenance_until=draw(st.none() | TIMES),
        trust_domains=draw(st.sampled_from([(), (TrustDomain.parse("a"),), LICENSE.trust_domains])),
        enforcement=draw(st.sampled_from(Enforcement)),
    )


class PayloadTests(SynchronousTestCase):
    """Reading and writing; the vectors have what is refused."""

    def test_document(self) -> None:
        """The payload has the members of the format."""
        self.assertEqual(
            json.loads(LICENSE.to_payload()),
            {
                "v": 1,
                "jti": LICENSE.id,
                "iss": "svc test vendor",
                "sub": "acme-17",
                "aud": "svc",
                "iat": 1767225600,
                "nbf": 1767225600,
                "exp": 1830297599,
                "svc": {
                    "licensee": "ACME GmbH",
                    "edition": "enterprise",
                    "features": ["federation", "mqtt"],
                    "limits": {"clusters": 3, "workloads": 500, "federatedPeers": 4},
                    "graceDays": 30,
                    "warnDays": [60, 30, 14, 7, 1],
                    "maintenanceUntil": "2027-12-31T23:59:59Z",
                    "trustDomains": ["prod.example.org"],
                    "enforcement": "soft",
                },
            },
        )

    @given(licenses())
    def test_round_trip(self, made: License) -> None:
        """What is written is read back equal."""
        self.assertEqual(License.from_payload(made.to_payload()), made)

    @given(st.binary(max_size=200))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets are refused with a reason."""
        self.assertRaises(EnvelopeError, License.from_payload, data)

    @given(
        st.dictionaries(st.sampled_from(sorted(json.loads(LICENSE.to_payload()))), st.none() | st.integers() | TEXTS)
    )
    def test_any_claims(self, changes: dict[str, object]) -> None:
        """Claims of any type are read or refused with a reason."""
        members = {**json.loads(LICENSE.to_payload()), **changes}
        try:
            License.from_payload(json.dumps(members).encode())
        except EnvelopeError as error:
            self.assertTrue(error.reason)

    def test_warnings_are_ordered(self) -> None:
        """The days of warnings are read in any order."""
        members = json.loads(LICENSE.to_payload())
        members["svc"]["warnDays"] = [7, 60, 30]
        self.assertEqual(License.from_payload(json.dumps(members).encode()).warn_days, (60, 30, 7))

    def test_instants(self) -> None:
        """One spelling of a time is accepted."""
        self.assertEqual(parse_instant("2027-12-31T23:59:59Z"), LICENSE.not_after)
        for text in (
            "2027-12-31",
            "2027-12-31T23:59:59",
            "2027-12-31T23:59:59+00:00",
            "2027-12-31T23:59:59.5Z",
            "2027-12-31 23:59:59Z",
            "20271231T235959Z",
            "2027-12-32T00:00:00Z",
            "",
        ):
            error = self.assertRaises(ValueError, parse_instant, text)
            self.assertEqual(str(error), "a time such as 2027-12-31T23:59:59Z")
        self.assertRaises(ValueError, parse_instant, 20271231)
