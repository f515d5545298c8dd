"""Envelopes are compacted and expanded without losing an octet."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.store.compact import PAYLOAD, CompactEnvelope, EnvelopeCompactor, expand, read_cuts
from tests.store.doubles import envelope_of

_DER = st.binary(min_size=1, max_size=40)


class CompactEnvelopeTests(SynchronousTestCase):
    """What envelopes share is cut out."""

    def test_certificates_and_payload_are_cut_out(self) -> None:
        """Neither the certificates nor the payload is left in the compact envelope."""
        payload, leaf, root = b'{"a":1}' * 20, b"L" * 300, b"R" * 300
        envelope = envelope_of(payload, (leaf, root), (b"P" * 300, root))
        compact = CompactEnvelope.of(envelope, payload)
        self.assertEqual((leaf, root, b"P" * 300), compact.certificates)
        self.assertEqual([PAYLOAD, 0, 1, 2, 1], [what for _offset, what in compact.cuts])
        self.assertLess(len(compact.octets), 400)
        self.assertEqual(envelope, compact.expand(payload))

    def test_cuts_can_be_written(self) -> None:
        """Cuts come back from their text."""
        payload = b"{}"
        envelope = envelope_of(payload, (b"leaf",))
        compact = CompactEnvelope.of(envelope, payload)
        cuts = read_cuts(compact.cuts_text())
        self.assertEqual(compact.cuts, cuts)
        self.assertEqual(envelope, expand(compact.octets, cuts, compact.certificates, payload))

    def test_other_spellings_are_left_whole(self) -> None:
        """A certificate that base64 would encode otherwise stays in it."""
        text = base64.b64encode(b"leaf!").decode()
        spare = text[:-2] + chr(ord(text[-2]) + 1) + "="
        envelope = json.dumps({"payload": "e30", "signatures": [{"header": {"x5c": [spare]}}]}).encode()
        compact = CompactEnvelope.of(envelope, b"{}")
        self.assertEqual(envelope, compact.expand(b"{}"))

    def test_no_envelope_at_all(self) -> None:
        """Octets that are not JSON are kept as they are."""
        for octets in (b"", b"\xff\x00", b"[]", b'{"signatures":[{"header":{"x5c":[1,null]}}]}', b'{"signatures":7}'):
            compact = CompactEnvelope.of(octets, b"payload")
            self.assertEqual((octets, ()), (compact.octets, compact.certificates))

    @given(st.binary(max_size=80), st.lists(st.lists(_DER, max_size=3), max_size=3))
    def test_any_envelope_comes_back(self, payload: bytes, chains: list[list[bytes]]) -> None:
        """Whatever payload and certificates an envelope has, it is expanded to the same octets."""
        envelope = envelope_of(payload, *chains)
        self.assertEqual(envelope, CompactEnvelope.of(envelope, payload).expand(payload))

    @given(st.binary(max_size=200), st.binary(max_size=40))
    def test_any_octets_come_back(self, octets: bytes, payload: bytes) -> None:
        """Whatever is put is expanded to the same octets."""
        self.assertEqual(octets, CompactEnvelope.of(octets, payload).expand(payload))


class EnvelopeCompactorTests(SynchronousTestCase):
    """One envelope after another."""

    def test_the_certificates_of_the_previous_envelope_are_cut_alike(self) -> None:
        """Envelopes with the same certificates give the result that each would give alone."""
        compactor = EnvelopeCompactor()
        for number in range(3):
            payload = b'{"n":%d}' % number
            envelope = envelope_of(payload, (b"L" * 300, b"R" * 300), (b"P" * 300, b"R" * 300))
            compact = compactor.compact(envelope, payload)
            self.assertEqual(compact, CompactEnvelope.of(envelope, payload))
            self.assertEqual(3, len(compact.certificates))

    def test_other_certificates_are_cut_as_well(self) -> None:
        """An envelope with other certificates is parsed, and so is the next one with the first."""
        compactor = EnvelopeCompactor()
        for leaf in (b"A" * 300, b"B" * 300, b"A" * 300):
            envelope = envelope_of(b"{}", (leaf, b"R" * 300))
            self.assertEqual((leaf, b"R" * 300), compactor.compact(envelope, b"{}").certificates)

    def test_only_a_whole_string_is_cut(self) -> None:
        """The text of a known certificate inside a longer one is left where it is."""
        compactor = EnvelopeCompactor()
        compactor.compact(envelope_of(b"{}", (b"abc",)), b"{}")
        envelope = envelope_of(b"{}", (b"abcabc",))
        compact = compactor.compact(envelope, b"{}")
        self.assertEqual((b"abcabc",), compact.certificates)
        self.assertEqual(envelope, compact.expand(b"{}"))

    @given(st.lists(st.lists(st.lists(_DER, max_size=3), max_size=3), max_size=4), st.binary(max_size=40))
    def test_any_sequence_comes_back(self, sequence: list[list[list[bytes]]], payload: bytes) -> None:
        """Whatever came before it, each envelope is expanded to the same octets."""
        compactor = EnvelopeCompactor()
        for chains in [*sequence, *sequence]:
            envelope = envelope_of(payload, *chains)
            self.assertEqual(envelope, compactor.compact(envelope, payload).expand(payload))
