"""Tests of svc.broker.deadlines, and of what the hub holds of times."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.deadlines import Deadlines
from svc.wire.mqtt import Properties
from tests.broker.rig import Rig

KEYS = st.sampled_from("abc")
TIMES = st.integers(0, 20)


class DeadlinesModel(RuleBasedStateMachine):
    """Compared with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines = Deadlines()
        self.model: dict[str, int] = {}

    @rule(key=KEYS, when=TIMES)
    def set(self, key: str, when: int) -> None:
        """Set or move."""
        self.deadlines.set(key, when)
        self.model[key] = when

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        """Forget."""
        self.deadlines.drop(key)
        self.model.pop(key, None)

    @rule(now=TIMES)
    def due(self, now: int) -> None:
        """Take what is due, in order."""
        expected = {key: when for key, when in self.model.items() if when <= now}
        got = list(self.deadlines.due(now))
        assert sorted(got) == sorted(expected)
        assert [expected[key] for key in got] == sorted(expected.values())
        for key in got:
            del self.model[key]

    @invariant()
    def held(self) -> None:
        """As many keys as in the model, and not much more."""
        assert len(self.deadlines) == len(self.model)
        assert self.deadlines.entries <= 2 * len(self.model) + 64


class DeadlinesTests(SynchronousTestCase):
    """What is moved often is held once."""

    def test_any_sequence(self) -> None:
        """Whatever is called, it does as a dictionary would."""
        run_state_machine_as_test(DeadlinesModel)

    def test_moved(self) -> None:
        """A key that is moved ten thousand times takes no more than a few entries, and is due once."""
        deadlines = Deadlines()
        for number in range(10_000):
            deadlines.set("k", 1000 + number)
            self.assertLessEqual(deadlines.entries, 66)
        self.assertEqual([], list(deadlines.due(10_998)))
        self.assertEqual(["k"], list(deadlines.due(10_999)))
        self.assertEqual([], list(deadlines.due(20_000)))

    def test_set_while_due(self) -> None:
        """What is set again while it is taken out is taken out again when that is due too."""
        deadlines = Deadlines()
        deadlines.set("k", 1)
        got = []
        for key in deadlines.due(5):
            got.append(key)
            if len(got) < 3:
                deadlines.set(key, 1 + len(got))
        self.assertEqual(["k"] * 3, got)

    def test_reconnecting(self) -> None:
        """Clients that come and go, and messages that replace each other, leave no times behind."""
        rig = Rig()
        properties = Properties(session_expiry=604_800)
        for _number in range(300):
            client = rig.connect("c", clean_start=False, properties=properties)
            client.publishes("t", b"m", retain=True, properties=Properties(message_expiry=604_800))
            client.loses()
            rig.passes(1)
        for deadlines in (rig.hub.session_deadlines, rig.hub.retained_deadlines):
            self.assertEqual(1, len(deadlines))
            self.assertLessEqual(deadlines.entries, 66)
