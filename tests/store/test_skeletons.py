"""Envelopes are cut and filled again without losing an octet."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.store.skeletons import PAYLOAD, Cutter, Skeleton, filled, read_cuts
from tests.store.doubles import envelope_of

_DER = st.binary(min_size=1, max_size=40)


class SkeletonTests(SynchronousTestCase):
    """What is shared is cut out."""

    def test_certificates_and_payload_are_cut_out(self) -> None:
        """Neither the certificates nor the payload is left in the skeleton."""
        payload, leaf, root = b'{"a":1}' * 20, b"L" * 300, b"R" * 300
        envelope = envelope_of(payload, (leaf, root), (b"P" * 300, root))
        skeleton = Skeleton.of(envelope, payload)
        self.assertEqual((leaf, root, b"P" * 300), skeleton.certificates)
        self.assertEqual([PAYLOAD, 0, 1, 2, 1], [what for _offset, what in skeleton.cuts])
        self.assertLess(len(skeleton.octets), 400)
        self.assertEqual(envelope, skeleton.filled(payload))

    def test_cuts_can_be_written(self) -> None:
        """Cuts come back from their text."""
        payload = b"{}"
        envelope = envelope_of(payload, (b"leaf",))
        skeleton = Skeleton.of(envelope, payload)
        cuts = read_cuts(skeleton.cuts_text())
        self.assertEqual(skeleton.cuts, cuts)
        self.assertEqual(envelope, filled(skeleton.octets, cuts, skeleton.certificates, payload))

    def test_other_spellings_are_left_whole(self) -> None:
        """A certificate that base64 would spell otherwise stays in the skeleton."""
        text = base64.b64encode(b"leaf!").decode()
        spare = text[:-2] + chr(ord(text[-2]) + 1) + "="
        envelope = json.dumps({"payload": "e30", "signatures": [{"header": {"x5c": [spare]}}]}).encode()
        skeleton = Skeleton.of(envelope, b"{}")
        self.assertEqual(envelope, skeleton.filled(b"{}"))

    def test_no_envelope_at_all(self) -> None:
        """Octets that are not JSON are kept as they are."""
        for octets in (b"", b"\xff\x00", b"[]", b'{"signatures":[{"header":{"x5c":[1,null]}}]}', b'{"signatures":7}'):
            skeleton = Skeleton.of(octets, b"payload")
            self.assertEqual((octets, ()), (skeleton.octets, skeleton.certificates))

    @given(st.binary(max_size=80), st.lists(st.lists(_DER, max_size=3), max_size=3))
    def test_any_envelope_comes_back(self, payload: bytes, chains: list[list[bytes]]) -> None:
        """Whatever payload and certificates an envelope has, it is filled to the same octets."""
        envelope = envelope_of(payload, *chains)
        self.assertEqual(envelope, Skeleton.of(envelope, payload).filled(payload))

    @given(st.binary(max_size=200), st.binary(max_size=40))
    def test_any_octets_come_back(self, octets: bytes, payload: bytes) -> None:
        """Whatever is put is filled to the same octets."""
        self.assertEqual(octets, Skeleton.of(octets, payload).filled(payload))


class CutterTests(SynchronousTestCase):
    """One envelope after another."""

    def test_the_certificates_of_the_envelope_before_are_cut_alike(self) -> None:
        """Envelopes of one generation give the skeletons that each would give alone."""
        cutter = Cutter()
        for number in range(3):
            payload = b'{"n":%d}' % number
            envelope = envelope_of(payload, (b"L" * 300, b"R" * 300), (b"P" * 300, b"R" * 300))
            skeleton = cutter.cut(envelope, payload)
            self.assertEqual(skeleton, Skeleton.of(envelope, payload))
            self.assertEqual(3, len(skeleton.certificates))

    def test_another_generation_is_cut_as_well(self) -> None:
        """An envelope with other certificates is read anew, and so is the next one with the first."""
        cutter = Cutter()
        for leaf in (b"A" * 300, b"B" * 300, b"A" * 300):
            envelope = envelope_of(b"{}", (leaf, b"R" * 300))
            self.assertEqual((leaf, b"R" * 300), cutter.cut(envelope, b"{}").certificates)

    def test_only_what_stands_as_a_whole_text_is_cut(self) -> None:
        """The text of a known certificate inside a longer one is left where it is."""
        cutter = Cutter()
        cutter.cut(envelope_of(b"{}", (b"abc",)), b"{}")
        envelope = envelope_of(b"{}", (b"abcabc",))
        skeleton = cutter.cut(envelope, b"{}")
        self.assertEqual((b"abcabc",), skeleton.certificates)
        self.assertEqual(envelope, skeleton.filled(b"{}"))

    @given(st.lists(st.lists(st.lists(_DER, max_size=3), max_size=3), max_size=4), st.binary(max_size=40))
    def test_any_sequence_comes_back(self, sequence: list[list[list[bytes]]], payload: bytes) -> None:
        """Whatever came before, each envelope is filled to the same octets."""
        cutter = Cutter()
        for chains in [*sequence, *sequence]:
            envelope = envelope_of(payload, *chains)
            self.assertEqual(envelope, cutter.cut(envelope, payload).filled(payload))
