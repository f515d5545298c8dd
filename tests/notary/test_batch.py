"""Batches of receipts: how they are signed, and how inclusions and artifacts are written and read."""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.notary.batch import (
    BATCH_ROOM,
    MAX_BATCH,
    MAX_DELAY,
    Inclusion,
    SignedBatch,
    batch_artifact,
    batch_hash,
    receipt_leaf,
    sign_batch,
)
from svc.notary.merkle import HASH_FUNCTIONS, path_length, root_of_path
from svc.notary.receipt import ReceiptDraft
from svc.strictjson import b64u_decode, b64u_encode, loads_object
from tests.notary.artifacts import Fixture, counting_random

FIXTURE = Fixture()
DRAFT = FIXTURE.draft()
IAT = DRAFT.issued_at


def drafts_of(count: int) -> list[ReceiptDraft]:
    """Drafts with different payloads, which need not be claims here."""
    return [dataclasses.replace(DRAFT, payload=b"%d" % number) for number in range(count)]


def signed(drafts: list[ReceiptDraft], *, issued_at: int = IAT) -> SignedBatch:
    """Sign drafts with the credentials of the fixture."""
    credentials = FIXTURE.credentials
    return sign_batch(drafts, credentials.spiffe_id, credentials.signers, issued_at, counting_random())


@st.composite
def inclusions(draw: st.DrawFn) -> Inclusion:
    """Inclusions of any place in a batch of any size."""
    size = draw(st.integers(2, MAX_BATCH))
    index = draw(st.integers(0, size - 1))
    octets = draw(st.sampled_from((32, 48)))
    length = path_length(index, size)
    path = tuple(draw(st.binary(min_size=octets, max_size=octets)) for _ in range(length))
    return Inclusion(index, size, draw(st.binary(min_size=32, max_size=32)), path)


class SigningTests(SynchronousTestCase):
    """What a batch contains."""

    def test_payload(self) -> None:
        """The payload names issuer, audience, time, hash function and size, and each path leads to its root."""
        drafts = drafts_of(7)
        batch = signed(drafts, issued_at=IAT + 2)
        envelope = Envelope.parse(batch.envelope)
        claims = loads_object(envelope.payload)
        svc = claims.pop("svc")
        assert isinstance(svc, dict)
        self.assertEqual({"iss", "aud", "iat", "jti"}, set(claims))
        self.assertEqual(str(FIXTURE.svid.spiffe_id), claims["iss"])
        self.assertEqual("https://svc.internal/receipt-batch", claims["aud"])
        self.assertEqual(IAT + 2, claims["iat"])
        self.assertEqual({"v": 1, "alg": "sha-256", "size": 7, "root": svc["root"]}, svc)
        self.assertEqual({naming.TYPE_BATCH}, {header.typ for header in envelope.headers})
        new_hash = HASH_FUNCTIONS["sha-256"]
        for number, (draft, inclusion) in enumerate(zip(drafts, batch.inclusions, strict=True)):
            self.assertEqual((number, 7), (inclusion.index, inclusion.size))
            leaf = receipt_leaf(inclusion.blind, draft.payload, new_hash)
            root = root_of_path(leaf, number, 7, inclusion.path, new_hash)
            self.assertEqual(b64u_decode(svc["root"]), root)

    def test_blinds(self) -> None:
        """Each receipt has its own blind, also of equal payloads."""
        batch = signed([DRAFT, DRAFT])
        self.assertEqual(2, len({inclusion.blind for inclusion in batch.inclusions}))
        self.assertEqual([32, 32], [len(inclusion.blind) for inclusion in batch.inclusions])

    def test_sizes(self) -> None:
        """A batch has 2 to 256 receipts."""
        for size in (2, MAX_BATCH):
            self.assertEqual(size, len(signed(drafts_of(size)).inclusions))
        for size in (0, 1, MAX_BATCH + 1):
            self.assertRaises(ValueError, signed, drafts_of(size))

    def test_times(self) -> None:
        """A receipt is at most 60 s older than its batch; a batch is never issued before one of its receipts."""
        self.assertEqual(2, len(signed([DRAFT, DRAFT], issued_at=IAT + MAX_DELAY).inclusions))
        self.assertRaises(ValueError, signed, [DRAFT, DRAFT], issued_at=IAT + MAX_DELAY + 1)
        later = dataclasses.replace(DRAFT, issued_at=IAT + MAX_DELAY)
        batch = signed([DRAFT, later], issued_at=IAT)
        self.assertEqual(IAT + MAX_DELAY, loads_object(Envelope.parse(batch.envelope).payload)["iat"])
        self.assertRaises(ValueError, signed, [DRAFT, dataclasses.replace(DRAFT, issued_at=IAT + MAX_DELAY + 1)])

    def test_hash_function(self) -> None:
        """SHA-384 exactly where ML-DSA-87 signs."""
        self.assertEqual("sha-256", batch_hash(["ES256", "ML-DSA-65"]))
        self.assertEqual("sha-256", batch_hash(["ES384"]))
        self.assertEqual("sha-384", batch_hash(["ES256", "ML-DSA-87"]))
        self.assertEqual("sha-384", batch_hash(["ML-DSA-87"]))


class InclusionTests(SynchronousTestCase):
    """Inclusions in JSON and in a database."""

    @given(inclusions())
    def test_round_trips(self, inclusion: Inclusion) -> None:
        """Both forms are read back to an equal inclusion; the compact one has at most 418 octets."""
        self.assertEqual(inclusion, Inclusion.from_object(inclusion.to_object()))
        octets = inclusion.to_octets()
        self.assertEqual(inclusion, Inclusion.from_octets(octets))
        self.assertLessEqual(len(octets), 418)

    @given(st.binary(max_size=420))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets are refused, or are the one form of an inclusion."""
        try:
            inclusion = Inclusion.from_octets(data)
        except Malformed:
            return
        self.assertEqual(data, inclusion.to_octets())

    @given(inclusions(), st.integers(-33, 33).filter(bool))
    def test_octets_cut(self, inclusion: Inclusion, change: int) -> None:
        """The compact form with octets missing or added at its end is refused, unless they are those of SHA-384."""
        data = inclusion.to_octets()
        changed = data[:change] if change < 0 else data + bytes(change)
        sizes = {length * len(inclusion.path) + 34 for length in (32, 48)}
        if len(changed) not in sizes:
            self.assertRaises(Malformed, Inclusion.from_octets, changed)

    def test_octets_refused(self) -> None:
        """A size of one, an index beyond the size, and a path for another place."""
        node = bytes(32)
        for head, path in ((b"\0\0", b""), (b"\0\0", node), (b"\2\1", node), (b"\0\2", node), (b"\2\2", node * 2)):
            self.assertRaises(Malformed, Inclusion.from_octets, head + bytes(32) + path)
        self.assertEqual(1, len(Inclusion.from_octets(b"\2\2" + bytes(32) + node).path))

    def test_members_refused(self) -> None:
        """Each member has one type and one range."""
        node = b64u_encode(bytes(32))
        right = {"index": 0, "size": 256, "blind": node, "path": [node] * 8}
        self.assertEqual(256, Inclusion.from_object(right).size)
        for name, values in (
            ("index", (None, True, -1, "0", 0.0)),
            ("size", (None, True, 1, 257, "2")),
            ("blind", (None, node[:-1], b64u_encode(bytes(31)), b64u_encode(bytes(33)), node + "=")),
            ("path", (None, {}, node, [node] * 9, [None], [b64u_encode(bytes(33))], [node[:-1] + "B"])),
        ):
            for value in values:
                error = self.assertRaises(Malformed, Inclusion.from_object, {**right, name: value})
                self.assertTrue(error.where.startswith(f"inclusion.{name}"), error.where)
        self.assertRaises(Malformed, Inclusion.from_object, [right])


class ArtifactTests(SynchronousTestCase):
    """The artifact that is served."""

    def test_members(self) -> None:
        """Payload, inclusion, the envelope as it was signed, and salts where there are any."""
        batch = signed([DRAFT, DRAFT])
        bare = batch_artifact(DRAFT.payload, batch.inclusions[1], batch.envelope, None)
        found = json.loads(bare)
        self.assertEqual(["payload", "inclusion", "batch"], list(found))
        self.assertEqual(DRAFT.payload, b64u_decode(found["payload"]))
        self.assertEqual(batch.inclusions[1], Inclusion.from_object(found["inclusion"]))
        self.assertIn(batch.envelope, bare)
        whole = batch_artifact(DRAFT.payload, batch.inclusions[1], batch.envelope, DRAFT.disclosures)
        self.assertEqual({**found, "disclosures": DRAFT.disclosures}, json.loads(whole))

    def test_size(self) -> None:
        """No artifact is written that a verifier would not read."""
        batch = signed([DRAFT, DRAFT])
        frame = len(batch_artifact(b"", batch.inclusions[0], batch.envelope, None))
        room = (MAX_ENVELOPE - frame) * 3 // 4
        longest = batch_artifact(bytes(room), batch.inclusions[0], batch.envelope, None)
        self.assertLessEqual(MAX_ENVELOPE - 2, len(longest))
        self.assertLessEqual(len(longest), MAX_ENVELOPE)
        error = self.assertRaises(
            EnvelopeError, batch_artifact, bytes(room + 2), batch.inclusions[0], batch.envelope, None
        )
        self.assertEqual("too_large", error.reason)

    def test_room(self) -> None:
        """The longest inclusion and the payload of the longest issuer fit the room that is kept for them."""
        inclusion = Inclusion(255, 256, bytes(32), (bytes(48),) * 8)
        issuer = f"spiffe://{'d' * 255}/{'p' * (2048 - 9 - 256)}"
        claims = {
            "iss": issuer,
            "aud": naming.AUDIENCE_BATCH,
            "iat": 253_402_300_799,
            "jti": b64u_encode(bytes(16)),
            "svc": {"v": 1, "alg": "sha-384", "size": 256, "root": b64u_encode(bytes(48))},
        }
        payload = json.dumps(claims, separators=(",", ":")).encode()
        batch = b'{"payload":"%b"}' % b64u_encode(payload).encode()
        longer = len(batch_artifact(b"", inclusion, batch, None)) - len(b'{"payload":""}')
        self.assertLessEqual(longer, BATCH_ROOM)
