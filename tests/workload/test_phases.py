"""Compares the table of phases with the source."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from svc.workload.interface import PHASE_CHANGES, WITHDRAWAL_GRACE_SECONDS, Phase
from tests.workload.messages import AUTHORITY, message_of
from tests.workload.test_source import SourceCase

INPUTS = sorted({what for _, what in PHASE_CHANGES})


class PhaseTests(SourceCase):
    """Phases and their transitions."""

    def move(self, what: str) -> None:
        """Apply an input."""
        if what == "good update":
            self.source.got_message(message_of(AUTHORITY.svid("/a")))
        elif what == "bad update or outage":
            self.break_off("unserved")
        elif what == "no identity for long":
            self.break_off("no_identity")
            self.clock.advance(WITHDRAWAL_GRACE_SECONDS)
            self.break_off("no_identity")
        else:
            self.source.stopService()

    @given(st.lists(st.sampled_from([each for each in INPUTS if each != "stop"]), max_size=6))
    def test_source_follows_the_table(self, inputs: list[str]) -> None:
        """After any inputs in any order, the phase is that of the table."""
        self.setUp()
        expected: Phase = "starting"
        for what in [*inputs, "stop"]:
            # Who answers that there is no identity has broken off the stream first.
            if what == "no identity for long" and expected == "connected":
                expected = "stale"
            expected = PHASE_CHANGES[expected, what]
            self.move(what)
            self.assertEqual(self.source.state.phase, expected, inputs)

    def test_every_phase_has_its_inputs(self) -> None:
        """No pair is missing except after a stop, and a withdrawal while connected, which is stale first."""
        pairs = {(phase, what) for phase in get_args(Phase) for what in INPUTS if phase != "stopped"}
        self.assertEqual(pairs - set(PHASE_CHANGES), {("connected", "no identity for long")})
        self.assertEqual(set(PHASE_CHANGES) - pairs, set())
