"""Tests of the faults that are injected before a verification."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.client.verification import with_broken_signature
from svc.envelope.envelope import Envelope
from svc.envelope.profile import Profile
from tests.cli.doubles import default_world


class FaultTests(SynchronousTestCase):
    """The fault bad-workload-statement."""

    def test_one_bit(self) -> None:
        """Exactly one bit of one signature changes: one that the profile checks."""
        data = default_world().generation.statement.envelope.serialize()
        before = Envelope.parse(data)
        for profile, index in ((Profile.HYBRID, 0), (Profile.CLASSICAL, 0), (Profile.PQ, 1)):
            after = Envelope.parse(with_broken_signature(data, profile))
            self.assertEqual(after.payload, before.payload)
            self.assertEqual(after.headers, before.headers)
            for position, (old, new) in enumerate(zip(before.signatures, after.signatures, strict=True)):
                flipped = int.from_bytes(old.signature) ^ int.from_bytes(new.signature)
                self.assertEqual(flipped, 1 if position == index else 0)

    def test_no_envelope(self) -> None:
        """Octets that are no envelope are returned unchanged; the verification refuses them."""
        self.assertEqual(with_broken_signature(b"no json", Profile.HYBRID), b"no json")
