"""What of the buffer identities share: at the bounds, and after a restart."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import BufferedMessage, BufferedSession, SessionKey
from svc.proxy.mqtt.stored.buffer.sharing import BufferShares
from tests.peers.waiting import rounds
from tests.proxy.mqtt.stored.buffering import OpenedBuffer, message, session

ONE, OTHER = "spiffe://prod.example/one", "spiffe://prod.example/other"
SIZE = message().size


def key(owner: str, listener: str = "iot") -> SessionKey:
    """The key of a session."""
    return SessionKey(listener, "c", owner)


class BoundTests(SynchronousTestCase):
    """The shares without a database."""

    def setUp(self) -> None:
        self.shares = BufferShares(BufferLimits(sessions=20, octets=20 * SIZE))

    def sessions(self, key: SessionKey) -> int:
        """Add sessions as long as they fit; returns how many."""
        added = 0
        while self.shares.session_fits(key):
            self.shares.sessions.change(key.holder, 1)
            added += 1
        return added

    def messages(self, key: SessionKey) -> int:
        """The same with messages."""
        added = 0
        while self.shares.message_fits(key, SIZE):
            self.shares.messages.take(key.holder, SIZE)
            added += 1
        return added

    def test_one_and_another(self) -> None:
        """One that is alone takes what there is but the last tenth, of which another one gets a part."""
        for fill in (self.sessions, self.messages):
            self.assertEqual(19, fill(key(ONE)))
            self.assertEqual(1, fill(key(OTHER)))
            self.assertEqual(0, fill(key("")))

    def test_dead_letters(self) -> None:
        """Dead letters are shared by number and by octets."""
        for limits in (BufferLimits(dead_letters=20), BufferLimits(dead_letter_octets=20 * SIZE)):
            self.shares, added = BufferShares(limits), []
            for owner in (ONE, OTHER):
                added.append(0)
                while self.shares.letter_fits(key(owner), SIZE):
                    self.shares.change_letters(owner, 1, SIZE)
                    added[-1] += 1
            self.assertEqual([19, 1], added)
            self.shares.change_letters(ONE, -19, -19 * SIZE)
            self.assertTrue(self.shares.letter_fits(key(ONE), SIZE))

    def test_given_back(self) -> None:
        """What one gives back is for others before it."""
        self.messages(key(ONE))
        self.messages(key(OTHER))
        self.shares.messages.take(ONE, -SIZE)
        self.assertEqual((0, 1), (self.messages(key(ONE)), self.messages(key(OTHER))))

    def test_without_identity(self) -> None:
        """All clients of a listener that have no identity hold one share, which is not that of another listener."""
        self.sessions(key(""))
        self.assertFalse(self.shares.session_fits(key("")))
        self.assertTrue(self.shares.session_fits(key("", "other")))

    def test_too_large(self) -> None:
        """Who holds nothing gets no more than there is."""
        self.assertTrue(self.shares.message_fits(key(ONE), 20 * SIZE))
        self.assertFalse(self.shares.message_fits(key(ONE), 20 * SIZE + 1))


class StoredShares(RuleBasedStateMachine):
    """A buffer whose sessions come and go, with their messages, and which is killed."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.opened = OpenedBuffer(folder, limits=BufferLimits(sessions=20, octets=20 * SIZE))
        self.opened.begin()
        #: Their messages by the numbers of sessions.
        self.sessions: dict[int, tuple[BufferedSession, list[BufferedMessage]]] = {}
        self.names = 0

    def teardown(self) -> None:
        self.opened.crash()

    @property
    def shares(self) -> BufferShares:
        """The shares since the last start."""
        return self.opened.buffer.shares

    @rule(owner=st.sampled_from((ONE, OTHER, "")))
    def begin(self, owner: str) -> None:
        """A session begins, if it fits."""
        self.names += 1
        new = session(str(self.names), owner=owner)
        if self.shares.session_fits(new.key):
            self.opened.buffer.session(new)
            self.sessions[new.number] = (new, [])

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), size=st.integers(0, 3 * SIZE))
    def store(self, data: st.DataObject, size: int) -> None:
        """A message comes, if it fits."""
        found, messages = self.sessions[data.draw(st.sampled_from(sorted(self.sessions)))]
        new = message(bytes(size))
        if self.shares.message_fits(found.key, new.size):
            self.opened.buffer.store(found, new)
            messages.append(new)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def forward(self, data: st.DataObject) -> None:
        """The oldest message of a session is forwarded, or a session without messages ends."""
        number = data.draw(st.sampled_from(sorted(self.sessions)))
        found, messages = self.sessions[number]
        if messages:
            self.opened.buffer.remove(found, messages.pop(0))
        else:
            del self.sessions[number]
            self.opened.buffer.forget(found)

    @rule()
    def restart(self) -> None:
        """All is durable, then the process is killed, and starts again."""
        self.opened.settle()
        self.opened.crash()
        loaded = {each.session.number: each for each in self.opened.begin()}
        assert loaded.keys() == self.sessions.keys()
        self.sessions = {number: (loaded[number].session, each[1]) for number, each in self.sessions.items()}

    @invariant()
    def counted(self) -> None:
        """Everything counts for who holds it, there is no more than the limits, and who has nothing gets something."""
        sessions, octets = Counter[str](), Counter[str]()
        for found, messages in self.sessions.values():
            sessions[found.key.holder] += 1
            octets[found.key.holder] += sum(each.size for each in messages)
        shares = self.shares
        assert {each: shares.sessions.held(each) for each in shares.sessions} == sessions
        assert {each: shares.messages.held(each) for each in sessions if octets[each]} == +octets
        assert shares.sessions.total == sessions.total() <= 20
        assert shares.messages.free == 20 * SIZE - octets.total() >= 0
        for free, fits in (
            (20 - sessions.total(), shares.session_fits),
            (shares.messages.free // SIZE, lambda each: shares.message_fits(each, SIZE)),
        ):
            assert not free or fits(key("spiffe://prod.example/third"))


class StoredSharesTests(SynchronousTestCase):
    """The shares of a buffer on its database."""

    def test_any_order_of_events(self) -> None:
        """Whatever comes and goes, and however often the process is killed, what each holds is known."""
        steps = settings(max_examples=rounds(30, 1000), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(lambda: StoredShares(self.mktemp()), settings=steps)  # type: ignore[arg-type]
