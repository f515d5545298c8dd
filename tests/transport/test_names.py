"""Tests of ``svc.transport.names``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.transport.addresses import TcpAddress
from svc.transport.endpoints import PlainClientEndpoint
from svc.transport.errors import ConnectFailed
from svc.transport.names import ATTEMPT_DELAY, Attempts, resolve_name


@implementer(IHostnameResolver)
class Resolver:
    """Resolves every name to the same addresses, at once."""

    def __init__(self, *addresses: Any) -> None:
        self._addresses = addresses

    def resolveHostName(
        self,
        resolutionReceiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[Any] | None = None,
        transportSemantics: str = "TCP",
    ) -> Any:
        """See the interface."""
        resolutionReceiver.resolutionBegan(None)
        for each in self._addresses:
            resolutionReceiver.addressResolved(each)
        resolutionReceiver.resolutionComplete()


class ResolveTests(SynchronousTestCase):
    """Names and their addresses."""

    def test_addresses(self) -> None:
        """The hosts come in the order of the resolver."""
        resolver = Resolver(IPv6Address("TCP", "::1", 80), UNIXAddress(b"/x"), IPv4Address("TCP", "127.0.0.1", 80))
        self.assertEqual(["::1", "127.0.0.1"], self.successResultOf(resolve_name(resolver, "localhost", 80)))

    def test_unknown_name(self) -> None:
        """A name without addresses does not resolve."""
        self.failureResultOf(resolve_name(Resolver(), "a.example", 80), DNSLookupError)


class AttemptsTests(SynchronousTestCase):
    """Several attempts for one connection."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: list[Deferred[Any]] = []
        self.cancelled: list[int] = []
        self.protocol = Protocol()

    def start(self, number: int) -> Deferred[Any]:
        """Start with a number of attempts, all of which are made by the test."""
        return Attempts(self.clock, [partial(self.begin, each) for each in range(number)]).start()

    def begin(self, number: int) -> Deferred[Any]:
        """Begin an attempt."""
        attempt: Deferred[Any] = Deferred(lambda _result: self.cancelled.append(number))
        self.begun.append(attempt)
        return attempt

    def fail(self, number: int) -> Refused:  # type: ignore[override]
        """Fail an attempt."""
        error = Refused(str(number))
        self.begun[number].errback(error)
        return error

    def test_next_follows_a_failure_at_once(self) -> None:
        """An address that refuses costs no time (RFC 8305, 5)."""
        result = self.start(3)
        self.assertEqual(1, len(self.begun))
        self.fail(0)
        self.assertEqual(2, len(self.begun))
        self.begun[1].callback(self.protocol)
        self.assertIs(self.protocol, self.successResultOf(result))
        self.assertEqual((2, []), (len(self.begun), self.clock.getDelayedCalls()))

    def test_next_follows_a_silent_one(self) -> None:
        """An address that does not answer is waited for beside the next, and the first to connect is kept."""
        result = self.start(3)
        self.clock.advance(ATTEMPT_DELAY - 0.01)
        self.assertEqual(1, len(self.begun))
        self.clock.advance(0.01)
        self.assertEqual(2, len(self.begun))
        self.begun[0].callback(self.protocol)
        self.assertIs(self.protocol, self.successResultOf(result))
        self.assertEqual(([1], 2, []), (self.cancelled, len(self.begun), self.clock.getDelayedCalls()))

    def test_delay_begins_with_each_attempt(self) -> None:
        """The address behind one that refused gets its whole time."""
        self.start(3).addErrback(lambda _failure: None)
        self.clock.advance(ATTEMPT_DELAY - 0.01)
        self.fail(0)
        self.clock.advance(ATTEMPT_DELAY - 0.01)
        self.assertEqual(2, len(self.begun))
        self.clock.advance(0.01)
        self.assertEqual(3, len(self.begun))

    def test_all_fail(self) -> None:
        """It fails when the last one under way has failed, as that one, without a wait."""
        result = self.start(2)
        self.clock.advance(ATTEMPT_DELAY)
        self.fail(1)
        self.assertNoResult(result)
        error = self.fail(0)
        self.assertIs(error, self.failureResultOf(result, Refused).value)
        result = self.start(1)
        self.fail(2)
        self.failureResultOf(result, Refused)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_cancel(self) -> None:
        """All attempts under way are cancelled, and no other begins."""
        result = self.start(3)
        self.clock.advance(ATTEMPT_DELAY)
        result.cancel()
        self.failureResultOf(result, CancelledError)
        self.assertEqual(([0, 1], 2, []), (self.cancelled, len(self.begun), self.clock.getDelayedCalls()))

    @given(st.lists(st.sampled_from(["refuses", "connects", "waits"]), min_size=1, max_size=6))
    def test_any_answers(self, answers: list[str]) -> None:
        """Whatever the addresses answer at once, there is one result, which is a connection where there is one."""
        self.setUp()

        def begin(answer: str) -> Deferred[Any]:
            attempt: Deferred[Any] = Deferred()
            if answer == "refuses":
                attempt.errback(Refused())
            elif answer == "connects":
                attempt.callback(answer)
            return attempt

        results: list[Any] = []
        result = Attempts(self.clock, [partial(begin, each) for each in answers]).start()
        result.addBoth(results.append)
        self.clock.pump([ATTEMPT_DELAY] * len(answers))
        if "connects" in answers:
            self.assertEqual(["connects"], results)
        elif "waits" in answers:
            self.assertEqual([], results)
            result.cancel()
        else:
            results[0].trap(Refused)
        self.assertEqual((1, []), (len(results), self.clock.getDelayedCalls()))


class EndpointTests(SynchronousTestCase):
    """An endpoint for a name."""

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.reactor.nameResolver = Resolver(IPv6Address("TCP", "::1", 1), IPv4Address("TCP", "127.0.0.1", 1))

    def refuse(self, number: int) -> None:
        """Refuse a connection."""
        self.reactor.tcpClients[number][2].clientConnectionFailed(None, Failure(Refused()))

    def test_first_address_refuses(self) -> None:
        """The second address is connected to at once, with the timeout and the local address."""
        endpoint = PlainClientEndpoint(
            self.reactor, TcpAddress("localhost", 80), timeout=7, bind_address=("127.0.0.2", 0)
        )
        connecting = endpoint.connect(Factory.forProtocol(Protocol))
        self.refuse(0)
        tried = [(host, port, timeout, bind) for host, port, _, timeout, bind in self.reactor.tcpClients]
        self.assertEqual([(each, 80, 7, ("127.0.0.2", 0)) for each in ("::1", "127.0.0.1")], tried)
        self.refuse(1)
        self.assertEqual("connection refused", self.failureResultOf(connecting, ConnectFailed).value.detail)
        self.assertEqual([], self.reactor.getDelayedCalls())

    def test_unknown_name(self) -> None:
        """A name that does not resolve is a failed connection."""
        self.reactor.nameResolver = Resolver()
        connecting = PlainClientEndpoint(self.reactor, TcpAddress("a.example", 80)).connect(Factory())
        self.assertEqual("the name does not resolve", self.failureResultOf(connecting, ConnectFailed).value.detail)
