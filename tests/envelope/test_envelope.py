"""The signature envelope as octets: parse, serialise, sign."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, MAX_PROTECTED, Envelope, ProtectedHeader, SignatureEntry, sign_envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import Signer, verify_signature
from svc.notary.pqleaf import PqLeaf
from svc.strictjson import b64u_decode, b64u_encode, dumps
from svc.testing.ca import TestAuthority
from tests.refusals import assert_refused

NOW = datetime(2026, 11, 21, tzinfo=UTC)
AUTHORITY = TestAuthority("example.org", now=NOW)
PQ_AUTHORITY = TestAuthority("example.org", now=NOW, algorithm="ML-DSA-65")
SVID = AUTHORITY.svid()
SIGNER = Signer.from_svid(SVID)
_CHAIN, _KEY = PQ_AUTHORITY.pq_leaf(SVID)
PQ_SIGNER = Signer.from_chain(_KEY, _CHAIN)
TYP = naming.TYPE_RECEIPT

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


def document(signers: tuple[Signer, ...] = (SIGNER,)) -> dict[str, Any]:
    """A right envelope as a JSON object."""
    members: dict[str, Any] = json.loads(sign_envelope(b'{"x":1}', TYP, signers).serialize())
    return members


class SignTests(SynchronousTestCase):
    """What :func:`sign_envelope` makes."""

    def test_members(self) -> None:
        """The protected header has exactly the members of the format, in both signatures."""
        envelope = sign_envelope(b"payload", TYP, [PQ_SIGNER, SIGNER])
        self.assertEqual([entry.alg for entry in envelope.signatures], ["ES256", "ML-DSA-65"])
        for entry, signer in zip(envelope.signatures, (SIGNER, PQ_SIGNER), strict=True):
            self.assertEqual(
                json.loads(b64u_decode(entry.protected.text)),
                {
                    "alg": signer.alg,
                    "typ": TYP,
                    "x5t#S256": signer.thumbprint,
                    "svc-set": ["ES256", "ML-DSA-65"],
                    "crit": ["svc-set"],
                },
            )

    def test_document(self) -> None:
        """The document is General JSON Serialization with the certificates unprotected and no root."""
        members = document()
        self.assertEqual(list(members), ["payload", "signatures"])
        self.assertEqual(b64u_decode(members["payload"]), b'{"x":1}')
        self.assertEqual(list(members["signatures"][0]), ["protected", "header", "signature"])
        self.assertEqual(members["signatures"][0]["header"], {"x5c": list(SIGNER.x5c)})

    def test_signing_input(self) -> None:
        """Each signature runs over its own header, a full stop and the payload (RFC 7515, 5.1)."""
        envelope = sign_envelope(b"payload", TYP, [SIGNER, PQ_SIGNER])
        for entry, signer in zip(envelope.signatures, (SIGNER, PQ_SIGNER), strict=True):
            data = (entry.protected.text + "." + b64u_encode(b"payload")).encode()
            self.assertEqual(envelope.signing_input(entry), data)
            verify_signature(entry.alg, signer.chain[0].public_key(), data, entry.signature)

    def test_raw_key(self) -> None:
        """A pinned key is named by kid and carries no header at all."""
        entry = sign_envelope(b"{}", naming.TYPE_LICENSE, [Signer.from_raw_key(_KEY)]).to_object()["signatures"]
        assert isinstance(entry, list)
        self.assertEqual(list(entry[0]), ["protected", "signature"])
        self.assertIn(b'"kid"', b64u_decode(entry[0]["protected"]))

    def test_signers(self) -> None:
        """None, three, and two of one kind are refused before anything is signed."""
        for signers in ((), (SIGNER, PQ_SIGNER, SIGNER), (SIGNER, SIGNER), (PQ_SIGNER, PQ_SIGNER)):
            assert_refused(self, "signers_unsuitable", sign_envelope, b"{}", TYP, signers)

    def test_extra(self) -> None:
        """Unsigned members are outside the payload and cannot replace signed ones."""
        plain = sign_envelope(b"{}", TYP, [SIGNER])
        envelope = plain.with_extra(disclosures={"request": {"1": "salt"}})
        self.assertEqual(plain.extra, {})
        self.assertEqual(Envelope.parse(envelope.serialize()).extra, {"disclosures": {"request": {"1": "salt"}}})
        for name in ("payload", "signatures", "protected", "header", "signature"):
            self.assertRaises(ValueError, plain.with_extra, **{name: 1})

    def test_largest(self) -> None:
        """256 KiB can be written and read, an octet more can be neither."""
        envelope = sign_envelope(b"{}", TYP, [SIGNER])
        room = MAX_ENVELOPE - len(envelope.with_extra(x="").serialize())
        data = envelope.with_extra(x="x" * room).serialize()
        self.assertEqual(len(data), MAX_ENVELOPE)
        self.assertEqual(Envelope.parse(data).payload, b"{}")
        assert_refused(self, "too_large", envelope.with_extra(x="x" * (room + 1)).serialize)
        error = assert_refused(self, "too_large", Envelope.parse, data + b" ")
        self.assertEqual(str(error), "the envelope has 262145 octets, at most 262144 are accepted")

    def test_pq_leaf_signer(self) -> None:
        """A post-quantum leaf gives the signer of chain B."""
        leaf = PqLeaf(_CHAIN, PQ_SIGNER._private_key, _CHAIN[0].not_valid_after_utc)  # type: ignore[arg-type]
        self.assertEqual(leaf.signer(), PQ_SIGNER)


class ParseTests(SynchronousTestCase):
    """What :meth:`Envelope.parse` refuses, and the position of the defect."""

    def refused(self, members: dict[str, Any] | bytes, where: str) -> None:
        """Expect ``malformed`` at a position."""
        data = members if isinstance(members, bytes) else dumps(members)
        error = self.assertRaises(Malformed, Envelope.parse, data)
        self.assertEqual((error.where, error.reason), (where, "malformed"))

    def test_document(self) -> None:
        """What is no JSON object is refused as a whole."""
        for data in (b"", b"[]", b"null", b'"x"', b"{", b"eyJ.e30.AA", b"\xff", b'{"payload":"","payload":""}'):
            self.refused(data, "the document")

    def test_payload(self) -> None:
        """The payload is canonical base64url text."""
        for value in (None, 1, ["AA"], "AB", "AA==", "A", "A A", "AA\n", "+/+/"):
            self.refused({**document(), "payload": value}, "payload")

    def test_signatures(self) -> None:
        """One or two signatures, in an array."""
        entry = document()["signatures"][0]
        for value in (None, {}, [], [entry] * 3, "x"):
            self.refused({**document(), "signatures": value}, "signatures")

    def test_entry(self) -> None:
        """Each element is an object with its three members."""
        entry = document()["signatures"][0]
        for value, where in (
            ("x", "signatures[0]"),
            ({**entry, "protected": 1}, "signatures[0].protected"),
            ({**entry, "protected": ""}, "signatures[0].protected"),
            ({**entry, "header": []}, "signatures[0].header"),
            ({**entry, "header": {"x5c": []}}, "signatures[0].header.x5c"),
            ({**entry, "header": {"x5c": "AA=="}}, "signatures[0].header.x5c"),
            ({**entry, "header": {"x5c": [1]}}, "signatures[0].header.x5c"),
            ({**entry, "header": {"x5c": ["AA=="] * 9}}, "signatures[0].header.x5c"),
            ({**entry, "signature": None}, "signatures[0].signature"),
            ({**entry, "signature": "AB"}, "signatures[0].signature"),
        ):
            self.refused({**document(), "signatures": [value]}, where)

    def test_protected(self) -> None:
        """Each member of the protected header has its type."""
        entry = document()["signatures"][0]
        right = json.loads(b64u_decode(entry["protected"]))
        for change in (
            {"alg": None},
            {"alg": 1},
            {"typ": ["x"]},
            {"crit": "svc-set"},
            {"crit": []},
            {"crit": [1]},
            {"svc-set": "ES256"},
            {"svc-set": []},
            {"svc-set": [None]},
            {"x5t#S256": 1},
            {"x5t#S256": "AA"},
            {"x5t#S256": right["x5t#S256"] + "="},
            {"kid": "name"},
            {"jku": ""},
            {"x5u": ""},
            {"jwk": {}},
            {"b64": True},
            {"x5c": []},
            {"x5t": ""},
        ):
            protected = b64u_encode(dumps({**right, **change}))
            self.refused({**document(), "signatures": [{**entry, "protected": protected}]}, "signatures[0].protected")

    def test_unprotected(self) -> None:
        """Members that must be signed are refused in the unprotected header."""
        entry = document()["signatures"][0]
        for name in ("alg", "typ", "crit", "svc-set", "x5t#S256", "kid", "jku", "x5u", "jwk", "b64", "x5t"):
            header = {**entry["header"], name: "x"}
            self.refused({**document(), "signatures": [{**entry, "header": header}]}, "signatures[0].header")

    def test_both_headers(self) -> None:
        """No name may be in both headers of a signature."""
        entry = document()["signatures"][0]
        right = json.loads(b64u_decode(entry["protected"]))
        for name in ("note", "cty", "svc-later", "", "é"):
            protected = b64u_encode(dumps({**right, name: 1}))
            for value in (1, "x"):
                header = {**entry["header"], name: value}
                both = {**entry, "protected": protected, "header": header}
                self.refused({**document(), "signatures": [both]}, "signatures[0].protected")
            alone = {**entry, "protected": protected, "header": {**entry["header"], f"{name}2": 1}}
            Envelope.parse(dumps({**document(), "signatures": [alone]}))

    def test_flattened(self) -> None:
        """Members of the flattened serialization are refused by name."""
        for name in ("protected", "header", "signature"):
            self.refused({**document(), name: ""}, "the document")

    def test_longest_header(self) -> None:
        """A protected header of 4 KiB is read, one octet more is refused."""
        entry = document()["signatures"][0]
        right = json.loads(b64u_decode(entry["protected"]))
        room = MAX_PROTECTED - len(dumps({**right, "x": ""}))
        header = ProtectedHeader.parse(b64u_encode(dumps({**right, "x": "x" * room})), "here")
        self.assertEqual(header.alg, "ES256")
        longer = b64u_encode(dumps({**right, "x": "x" * (room + 1)}))
        self.assertRaises(Malformed, ProtectedHeader.parse, longer, "here")

    def test_unknown_members(self) -> None:
        """Unknown members are ignored; of the top level they are kept as unsigned."""
        members = document()
        plain = Envelope.parse(dumps(members))
        members["signatures"][0]["note"] = 1
        members["signatures"][0]["header"]["note"] = 1
        envelope = Envelope.parse(dumps({**members, "hints": {"a": 1}}))
        self.assertEqual(envelope.extra, {"hints": {"a": 1}})
        self.assertEqual(envelope.signatures, plain.signatures)


_NAMES = st.dictionaries(st.sampled_from(["a", "b", "c", "A", "", "x5c2"]), st.integers(0, 1), max_size=2)


class PropertyTests(SynchronousTestCase):
    """Any octets, and round trips."""

    @given(st.binary(max_size=400) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets give an envelope or a typed error."""
        try:
            Envelope.parse(data)
        except EnvelopeError as error:
            self.assertIn(error.reason, ("malformed", "too_large"))

    @given(_NAMES, _NAMES)
    def test_any_header_names(self, protected: dict[str, object], unprotected: dict[str, object]) -> None:
        """Members without a meaning pass if and only if the two headers share no name."""
        members = document()
        entry = members["signatures"][0]
        right = json.loads(b64u_decode(entry["protected"]))
        entry["protected"] = b64u_encode(dumps({**right, **protected}))
        entry["header"] = {**entry["header"], **unprotected}
        if protected.keys() & unprotected.keys():
            self.assertRaises(Malformed, Envelope.parse, dumps(members))
        else:
            Envelope.parse(dumps(members))

    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "payload": JSON | st.binary(max_size=20).map(b64u_encode),
                "signatures": JSON
                | st.lists(
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "protected": JSON | JSON.map(lambda value: b64u_encode(dumps(value))),
                            "header": JSON | st.fixed_dictionaries({"x5c": JSON}),
                            "signature": JSON | st.binary(max_size=20).map(b64u_encode),
                        },
                    ),
                    max_size=3,
                ),
                "protected": JSON,
                "x": JSON,
            },
        )
    )
    def test_any_members(self, members: dict[str, object]) -> None:
        """Any JSON members give an envelope or ``malformed``."""
        try:
            Envelope.parse(dumps(members))
        except EnvelopeError as error:
            self.assertEqual(error.reason, "malformed")

    @settings(max_examples=30)
    @given(st.binary(max_size=300), st.dictionaries(st.sampled_from(["a", "disclosures"]), JSON), st.booleans())
    def test_round_trip(self, payload: bytes, extra: dict[str, object], both: bool) -> None:
        """What is signed and written is read back equal, the payload verbatim."""
        signed = sign_envelope(payload, TYP, [SIGNER, PQ_SIGNER] if both else [SIGNER]).with_extra(**extra)
        read = Envelope.parse(signed.serialize())
        self.assertEqual(read, signed)
        self.assertEqual(read.serialize(), signed.serialize())
        self.assertTrue(all(isinstance(entry, SignatureEntry) for entry in read.signatures))
