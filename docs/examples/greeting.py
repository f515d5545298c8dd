"""
A protocol of your own behind SPIFFE mutual TLS: the server greets each caller by its verified identity.

    python docs/examples/greeting.py serve unix:///run/svc/agent.sock 127.0.0.1:7000
    python docs/examples/greeting.py ask   unix:///run/svc/agent.sock 127.0.0.1:7000 spiffe://prod.example.org/ns/demo/sa/greeter
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.task import react
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity import SvidEvidence, parse_matcher
from svc.transport.addresses import parse_address
from svc.transport.creators import TlsIdentity, client_creator, server_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, MutualTlsServerEndpoint
from svc.transport.evidence import peer_evidence
from svc.workload.source import WorkloadSource

ALPN = (b"example-greeting/1",)
GUESTS = parse_matcher("spiffe://prod.example.org/ns/demo/*")


class NotInvited(SvcError):
    """{spiffe_id} is no guest of {guests}"""

    reason = "not_invited"


def admit(caller: SvidEvidence) -> None:
    """Decide in the handshake: whoever is refused here never reaches the protocol."""
    if not GUESTS.matches(caller.spiffe_id):
        raise NotInvited(spiffe_id=caller.spiffe_id, guests=GUESTS)


def utc_now() -> datetime:
    """Tell the time at which peers are judged."""
    return datetime.now(UTC)


class Greeter(LineReceiver):
    """Greets and hangs up."""

    def connectionMade(self) -> None:
        """The caller is verified already."""
        caller = peer_evidence(self.transport)
        self.sendLine(f"welcome, {caller.svid.spiffe_id}; this connection uses {caller.group}".encode())
        self.transport.loseConnection()  # type: ignore[union-attr]


class Caller(LineReceiver):
    """Waits for the greeting."""

    def __init__(self) -> None:
        self.greeting: Deferred[str] = Deferred()

    def lineReceived(self, line: bytes) -> None:
        """Here it is."""
        self.greeting.callback(line.decode())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """TLS 1.3 tells a refused client late: the typed reason comes here."""
        if not self.greeting.called:
            self.greeting.errback(reason)


def serve(reactor: Any, source: TlsIdentity, address: str, now: Any = utc_now) -> Deferred[IListeningPort]:
    """Listen; the source may rotate at any time, each new connection uses what it holds then."""
    creator = server_creator(source, clock=now, authorize=admit, alpn=ALPN)
    endpoint = MutualTlsServerEndpoint(reactor, parse_address(address), creator)
    return endpoint.listen(Factory.forProtocol(Greeter))


async def ask(reactor: Any, source: TlsIdentity, address: str, expected: str, now: Any = utc_now) -> str:
    """Connect to exactly the workload that is expected."""
    creator = client_creator(source, clock=now, expected=parse_matcher(expected), alpn=ALPN)
    endpoint = MutualTlsClientEndpoint(reactor, parse_address(address), creator)
    caller = cast(Caller, await endpoint.connect(Factory.forProtocol(Caller)))
    return await caller.greeting


async def main(reactor: Any, verb: str, socket: str, address: str, expected: str = "") -> None:
    """Get an identity, then serve or ask."""
    source = WorkloadSource(socket, reactor=reactor)
    source.startService()
    await source.when_ready()
    if verb == "serve":
        await serve(reactor, source, address)
        print(f"{source.svid.spiffe_id} listens at {address}", flush=True)
        await Deferred()
    try:
        print(await ask(reactor, source, address, expected))
    except SvcError as error:
        raise SystemExit(f"{error} ({error.reason})") from error
    finally:
        await source.stopService()


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
