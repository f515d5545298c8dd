"""Envelopes are compacted and expanded without loss."""

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
    """Compacting one envelope."""

    def test_certificates_and_payload_are_cut_out(self) -> None:
        """The compact envelope contains neither the certificates nor the payload."""
        payload, leaf, root = b'{"a":1}' * 20, b"L" * 300, b"R" * 300
        envelope = envelope_of(payload, (leaf, root), (b"P" * 300, root))
        compact = CompactEnvelope.of(envelope, payload)
        self.assertEqual((leaf, root, b"P" * 300), compact.certificates)
        self.assertEqual([PAYLOAD, 0, 1, 2, 1], [what for _offset, what in compact.cuts])
        self.assertLess(len(compact.octets), 400)
        self.assertEqual(envelope, compact.expand(payload))

    def test_cuts_can_be_written(self) -> None:
        """Cuts are restored from their text."""
        payload = b"{}"
        envelope = envelope_of(payload, (b"leaf",))
        compact = CompactEnvelope.of(envelope, payload)
        cuts = read_cuts(compact.cuts_text())
        self.assertEqual(compact.cuts, cuts)
        self.assertEqual(envelope, expand(compact.octets, cuts, compact.certificates, payload))

    def test_other_base64_is_not_cut_out(self) -> None:
        """A certificate whose base64 text is not canonical is not cut out."""
        text = base64.b64encode(b"leaf!").decode()
        spare = text[:-2] + chr(ord(text[-2]) + 1) + "="
        envelope = json.dumps({"payload": "e30", "signatures": [{"header": {"x5c": [spare]}}]}).encode()
        compact = CompactEnvelope.of(envelope, b"{}")
        self.assertEqual(envelope, compact.expand(b"{}"))

    def test_octets_that_are_no_envelope(self) -> None:
        """Octets that are not JSON are stored unchanged."""
        for octets in (b"", b"\xff\x00", b"[]", b'{"signatures":[{"header":{"x5c":[1,null]}}]}', b'{"signatures":7}'):
            compact = CompactEnvelope.of(octets, b"payload")
            self.assertEqual((octets, ()), (compact.octets, compact.certificates))

    @given(st.binary(max_size=80), st.lists(st.lists(_DER, max_size=3), max_size=3))
    def test_any_envelope_comes_back(self, payload: bytes, chains: list[list[bytes]]) -> None:
        """Any envelope is expanded to the same octets."""
        envelope = envelope_of(payload, *chains)
        self.assertEqual(envelope, CompactEnvelope.of(envelope, payload).expand(payload))

    @given(st.binary(max_size=200), st.binary(max_size=40))
    def test_any_octets_come_back(self, octets: bytes, payload: bytes) -> None:
        """Any octets are expanded to the same octets."""
        self.assertEqual(octets, CompactEnvelope.of(octets, payload).expand(payload))


class EnvelopeCompactorTests(SynchronousTestCase):
    """Compacting one envelope after another."""

    def test_the_certificates_of_the_previous_envelope_are_cut_alike(self) -> None:
        """Each envelope gives the same result as when it is compacted alone."""
        compactor = EnvelopeCompactor()
        for number in range(3):
            payload = b'{"n":%d}' % number
            envelope = envelope_of(payload, (b"L" * 300, b"R" * 300), (b"P" * 300, b"R" * 300))
            compact = compactor.compact(envelope, payload)
            self.assertEqual(compact, CompactEnvelope.of(envelope, payload))
            self.assertEqual(3, len(compact.certificates))

    def test_other_certificates_are_cut_as_well(self) -> None:
        """An envelope with other certificates is parsed, and so is the next one with the first certificates."""
        compactor = EnvelopeCompactor()
        for leaf in (b"A" * 300, b"B" * 300, b"A" * 300):
            envelope = envelope_of(b"{}", (leaf, b"R" * 300))
            self.assertEqual((leaf, b"R" * 300), compactor.compact(envelope, b"{}").certificates)

    def test_only_a_whole_string_is_cut(self) -> None:
        """The text of a known certificate inside a longer string is not cut out."""
        compactor = EnvelopeCompactor()
        compactor.compact(envelope_of(b"{}", (b"abc",)), b"{}")
        envelope = envelope_of(b"{}", (b"abcabc",))
        compact = compactor.compact(envelope, b"{}")
        self.assertEqual((b"abcabc",), compact.certificates)
        self.assertEqual(envelope, compact.expand(b"{}"))

    @given(st.lists(st.lists(st.lists(_DER, max_size=3), max_size=3), max_size=4), st.binary(max_size=40))
    def test_any_sequence_comes_back(self, sequence: list[list[list[bytes]]], payload: bytes) -> None:
        """In any sequence each envelope is expanded to the same octets."""
        compactor = EnvelopeCompactor()
        for chains in [*sequence, *sequence]:
            envelope = envelope_of(payload, *chains)
            self.assertEqual(envelope, compactor.compact(envelope, payload).expand(payload))
