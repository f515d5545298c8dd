"""
An existing twisted.web site behind SPIFFE mutual TLS; each resource can ask who calls.

    python docs/examples/site.py unix:///run/svc/agent.sock 127.0.0.1:7443
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import react
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from svc.transport.addresses import parse_address
from svc.transport.creators import TlsIdentity, server_creator
from svc.transport.endpoints import MutualTlsServerEndpoint
from svc.transport.evidence import peer_evidence
from svc.workload.source import WorkloadSource


class WhoAmI(Resource):
    """Tells callers who they are."""

    isLeaf = True

    def render_GET(self, request: Request) -> bytes:
        """Answer with the verified identity."""
        caller = peer_evidence(request.channel.transport)
        request.setHeader(b"content-type", b"text/plain")
        return f"{caller.svid.spiffe_id}\n".encode()


def utc_now() -> datetime:
    """Tell the time at which peers are judged."""
    return datetime.now(UTC)


def serve(reactor: Any, source: TlsIdentity, address: str, now: Any = utc_now) -> Deferred[IListeningPort]:
    """Listen for workloads whose SVIDs verify; HTTP/1.1 is what ALPN agrees on."""
    creator = server_creator(source, clock=now, groups="require")
    endpoint = MutualTlsServerEndpoint(reactor, parse_address(address), creator)
    return endpoint.listen(Site(WhoAmI(), reactor=reactor))


async def main(reactor: Any, socket: str, address: str) -> None:
    """Get an identity, then serve."""
    source = WorkloadSource(socket, reactor=reactor)
    source.startService()
    await source.when_ready()
    await serve(reactor, source, address)
    print(f"{source.svid.spiffe_id} serves https://{address}/", flush=True)
    await Deferred()


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
