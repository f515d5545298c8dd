"""Which connection a full listener closes to make room for a new one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.proxy.connection_settings import LimitSettings
from svc.proxy.eviction import MOST_SHARES, EvictionOrder, IdentityShare
from svc.transport.errors import ConnectionLimitReached
from svc.transport.limits import connection_limit
from tests.proxy.policies import admit_domain, admit_nobody
from tests.proxy.rig import CALLER, Rig, Wire, lose

LIMIT = 6
NAMES = [SpiffeID.parse(f"spiffe://example.org/{name}") for name in "abc"]
GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Member:
    """A connection as the eviction order sees it."""

    def __init__(self, order: EvictionOrder, identity: SpiffeID) -> None:
        self.order = order
        self.evictable = True
        self.evicted: SvcError | None = None
        self.permitted = self.busy = False
        #: The number of the step since which it is idle.
        self.since = 0
        self.share: IdentityShare = order.join(self, identity)

    def evict(self, error: SvcError) -> None:
        """Record the eviction."""
        self.evicted = error
        self.order.leave(self, self.share)


class FullListener(RuleBasedStateMachine):
    """The limiter used as by a listener port: when all slots are taken, evict one, then take one."""

    def __init__(self) -> None:
        super().__init__()
        self.order = EvictionOrder(LIMIT)
        self.slots = connection_limit(LIMIT)
        self.open: list[Member] = []
        self.step = 0

    @rule(identity=st.sampled_from(NAMES))
    def connect(self, identity: SpiffeID) -> None:
        """A client connects."""
        self.step += 1
        expected = self.expected() if len(self.open) == LIMIT else None
        if self.slots.held == LIMIT and (self.order.evict_unpermitted() or self.order.evict_idle()):
            self.slots.release()
        gone = [each for each in self.open if each.evicted is not None]
        assert gone == ([] if expected is None else [expected]), "another one than the longest idle went"
        for each in gone:
            assert not each.busy
            assert each.evicted is not None
            assert each.evicted.reason == ("evicted_idle" if each.permitted else "evicted_unpermitted")
            self.open.remove(each)
        try:
            self.slots.acquire()
        except ConnectionLimitReached:
            assert all(each.busy for each in self.open)
            return
        member = Member(self.order, identity)
        member.since = self.step
        self.open.append(member)

    def expected(self) -> Member | None:
        """Return the connection to evict, found by a search over all connections."""
        idle = sorted((each for each in self.open if not each.busy), key=lambda each: each.since)
        for each in idle:
            if not each.permitted:
                return each
        held = Counter(each.share.identity for each in self.open)
        most = max((held[each.share.identity] for each in idle), default=0)
        largest = [each for each in idle if held[each.share.identity] == most]
        # Identities that hold the same number may be in any order.
        real = [each for each in largest if each.share is self.first_of(most)]
        return real[0] if real else None

    def first_of(self, size: int) -> IdentityShare | None:
        """Return the share that the order examines first among those of a size."""
        held = self.order._held
        return next((each for each in held.largest_first() if held.held(each) == size and each.idle), None)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, LIMIT - 1), permitted=st.booleans())
    def request(self, number: int, permitted: bool) -> None:
        """A request begins, permitted or refused; a permitted one keeps running."""
        self.step += 1
        member = self.open[number % len(self.open)]
        if member.busy:
            return
        (member.share.idle if member.permitted else self.order.unpermitted).pop(member)
        member.permitted = member.permitted or permitted
        member.busy = True

    @precondition(lambda self: any(each.busy for each in self.open))
    @rule(number=st.integers(0, LIMIT - 1))
    def answer(self, number: int) -> None:
        """A request is answered."""
        self.step += 1
        busy = [each for each in self.open if each.busy]
        member = busy[number % len(busy)]
        member.busy, member.since = False, self.step
        (member.share.idle if member.permitted else self.order.unpermitted)[member] = None

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, LIMIT - 1))
    def leave(self, number: int) -> None:
        """A client disconnects."""
        member = self.open.pop(number % len(self.open))
        self.order.leave(member, member.share)
        self.slots.release()

    @invariant()
    def bounds(self) -> None:
        """The number of connections never exceeds the limit, and the order lists exactly the open ones."""
        assert self.slots.held == len(self.open) <= LIMIT
        assert all(each.evicted is None for each in self.open)
        held = Counter(each.share.identity for each in self.open)
        assert {name: self.order._held.held(share) for name, share in self.order._shares.items()} == held
        shares = set(self.order._held)
        assert shares == set(self.order._shares.values())
        listed = [*self.order.unpermitted, *(each for share in shares for each in share.idle)]
        assert set(listed) == {each for each in self.open if not each.busy}
        assert len(listed) == len(set(listed))


class FullListenerTests(SynchronousTestCase):
    """The order of evictions under any sequence of steps."""

    def test_any_order(self) -> None:
        """It is that of the model."""
        run_state_machine_as_test(FullListener)


class Relayed:
    """A TCP connection as the eviction order sees it."""

    evictable = True

    def __init__(self, order: EvictionOrder, identity: SpiffeID) -> None:
        self.order = order
        self.identity = identity
        self.evicted: SvcError | None = None
        self.used = 0
        self.share: IdentityShare = order.admit(self, identity)

    def evict(self, error: SvcError) -> None:
        """Record the eviction."""
        self.evicted = error
        self.order.leave(self, self.share)


class FullTcpListener(RuleBasedStateMachine):
    """Connections that are let in fairly between identities, compared with a search over all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.order = EvictionOrder(LIMIT)
        self.open: list[Relayed] = []
        self.step = 0

    @rule(identity=st.sampled_from(NAMES))
    def connect(self, identity: SpiffeID) -> None:
        """A client connects; where the listener is full, one that holds more loses its longest idle connection."""
        self.step += 1
        full = len(self.open) == LIMIT
        held = Counter(each.identity for each in self.open)
        most = max(held.values(), default=0)
        try:
            client = Relayed(self.order, identity)
        except ConnectionLimitReached as error:
            assert full and most <= held[identity] + 1
            assert error.limit == LIMIT
            return
        client.used = self.step
        gone = [each for each in self.open if each.evicted is not None]
        assert len(gone) == full
        for each in gone:
            assert held[each.identity] == most > held[identity] + 1
            assert each.used == min(other.used for other in self.open if other.identity == each.identity)
            self.open.remove(each)
        self.open.append(client)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, LIMIT - 1))
    def use(self, number: int) -> None:
        """Octets pass."""
        self.step += 1
        client = self.open[number % len(self.open)]
        client.used = self.step
        client.share.used(client)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(0, LIMIT - 1))
    def leave(self, number: int) -> None:
        """A client disconnects; what was still counted of it moves nothing."""
        client = self.open.pop(number % len(self.open))
        self.order.leave(client, client.share)
        client.share.used(client)

    @invariant()
    def bounds(self) -> None:
        """Exactly the open connections are counted, at most as many as the limit."""
        assert len(self.open) <= LIMIT
        held = Counter(each.identity for each in self.open)
        assert {name: self.order._held.held(share) for name, share in self.order._shares.items()} == held
        assert {each for share in self.order._shares.values() for each in share.idle} == set(self.open)


FullTcpListenerTests = FullTcpListener.TestCase


class OrderTests(SynchronousTestCase):
    """The eviction order alone."""

    def test_no_connections(self) -> None:
        """Without connections nothing is evicted."""
        order = EvictionOrder(1)
        self.assertFalse(order.evict_unpermitted() or order.evict_idle())

    def test_request_that_has_begun(self) -> None:
        """Among connections of the largest identity one with a running request is kept and an idle one is evicted."""
        order = EvictionOrder(3)
        first, second, third = (Member(order, NAMES[0]) for _ in range(3))
        for each in (first, second):
            order.unpermitted.pop(each)
            each.share.idle[each] = None
        first.evictable = False
        order.unpermitted.pop(third)
        self.assertTrue(order.evict_idle())
        self.assertEqual([None, None], [first.evicted, third.evicted])
        assert second.evicted is not None
        self.assertEqual(second.evicted.reason, "evicted_idle")
        self.assertFalse(order.evict_idle())

    def test_bound_of_the_search(self) -> None:
        """The search for an idle connection examines a limited number of identities."""
        for count, found in ((MOST_SHARES - 1, True), (MOST_SHARES, False)):
            order = EvictionOrder(MOST_SHARES + 1)
            for number in range(count):
                order.unpermitted.pop(Member(order, SpiffeID.parse(f"spiffe://example.org/{number}")))
            last = Member(order, NAMES[0])
            order.unpermitted.pop(last)
            last.share.idle[last] = None
            self.assertIs(found, order.evict_idle())


class ClientTests(SynchronousTestCase):
    """Client connections in that order."""

    def setUp(self) -> None:
        self.rig = Rig(limits=LimitSettings(connections=2))
        self.order = self.rig.context.evictions

    def served(self, data: bytes = GET) -> tuple[Any, Wire]:
        """Return a client whose request was answered."""
        client, wire = self.rig.client()
        client.dataReceived(data)
        self.rig.respond(OK)
        return client, wire

    def refused(self, data: bytes = GET) -> tuple[Any, Wire]:
        """Return a client that the policy refuses."""
        self.rig.context.policies = admit_nobody()
        client, wire = self.rig.client()
        client.dataReceived(data)
        self.assertIn(b"403", wire.take())
        return client, wire

    def closed(self, cause: str) -> float | None:
        """Return how many connections were closed with this cause."""
        name, labels = "svc_proxy_connections_closed_total", {"protocol": "http", "cause": cause}
        return self.rig.registry.get_sample_value(name, labels)

    def test_refused_first(self) -> None:
        """A connection with only refused requests is evicted before one that was served; it is counted and reported."""
        _served, wire = self.served()
        _refused, other = self.refused()
        self.assertTrue(self.order.evict_unpermitted())
        self.assertTrue(other.disconnecting)
        self.assertFalse(wire.disconnecting)
        self.assertEqual(1, self.closed("evicted_unpermitted"))
        self.assertEqual([("evicted_unpermitted", str(CALLER.spiffe_id))], self.rig.reporter.evictions)
        self.assertFalse(self.order.evict_unpermitted())

    def test_refused_again_and_again(self) -> None:
        """Further refused requests move a connection behind other refused ones, but not into a better class."""
        first, wire = self.refused()
        _second, other = self.refused()
        first.dataReceived(GET)
        self.assertTrue(self.order.evict_unpermitted())
        self.assertEqual((False, True), (wire.disconnecting, other.disconnecting))
        self.assertTrue(self.order.evict_unpermitted())
        self.assertTrue(wire.disconnecting)

    def test_without_a_request(self) -> None:
        """A connection without a complete request is in the first class: the handshake alone permits nothing."""
        for data in (b"", GET[:10]):
            client, wire = self.rig.client()
            client.dataReceived(data)
            self.assertTrue(self.order.evict_unpermitted())
            self.assertTrue(wire.disconnecting)

    def test_refused_and_closing(self) -> None:
        """A refused client that does not complete the close is evicted; data that it had not read is lost."""
        _client, wire = self.refused(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n\r\n")
        self.assertTrue(wire.disconnecting)
        wire.unsent = 1
        self.assertTrue(self.order.evict_unpermitted())
        self.assertTrue(wire.aborted)

    def test_permitted_and_closing(self) -> None:
        """A permitted client that is still reading its last response is not evicted."""
        client, wire = self.served()
        client.close("idle")
        self.assertTrue(wire.disconnecting)
        self.assertFalse(self.order.evict_unpermitted() or self.order.evict_idle())
        self.assertFalse(wire.aborted)

    def test_running(self) -> None:
        """A running exchange is never cut, neither the first one nor a later one."""
        client, wire = self.rig.client()
        client.dataReceived(GET)
        self.assertFalse(self.order.evict_unpermitted() or self.order.evict_idle())
        self.rig.respond(OK)
        client.dataReceived(GET[:10])
        self.assertFalse(self.order.evict_unpermitted() or self.order.evict_idle())
        client.dataReceived(GET[10:])
        self.assertFalse(self.order.evict_idle())
        self.rig.respond(OK)
        self.assertTrue(self.order.evict_idle())
        self.assertTrue(wire.disconnecting)
        self.assertEqual(1, self.closed("evicted_idle"))

    def test_response_not_read_yet(self) -> None:
        """A connection whose response is not fully sent is not evicted."""
        _client, wire = self.served()
        wire.unsent = 1
        self.assertFalse(self.order.evict_idle())
        self.assertFalse(wire.aborted or wire.disconnecting)

    def test_another_policy(self) -> None:
        """A client that a new policy permits is in the second class after its next request."""
        client, wire = self.refused()
        self.rig.context.policies = admit_domain()
        client.reauthorize()
        client.dataReceived(GET)
        self.rig.respond(OK)
        self.assertFalse(self.order.evict_unpermitted())
        self.assertTrue(self.order.evict_idle())
        self.assertTrue(wire.disconnecting)

    def test_closed_connection_is_removed(self) -> None:
        """A closed connection is removed from the order, however it ended."""
        for each in (self.served()[0], self.rig.client()[0]):
            lose(each)
        client, _wire = self.served()
        client.close("idle")
        lose(client)
        client, _wire = self.refused()
        client.close("idle")
        lose(client)
        self.assertEqual(({}, {}, {}), (self.order.unpermitted, self.order._shares, dict.fromkeys(self.order._held)))

    def test_outbound(self) -> None:
        """All applications of an outbound listener share one identity: the longest idle connection is evicted."""
        self.rig = Rig(inbound=False)
        self.order = self.rig.context.evictions
        _first, wire = self.served()
        _second, other = self.served()
        self.assertFalse(self.order.evict_unpermitted())
        self.assertTrue(self.order.evict_idle())
        self.assertEqual((True, False), (wire.disconnecting, other.disconnecting))
