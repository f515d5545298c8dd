"""
Mount the notary before an existing twisted.web site: statements, receipts and the reserved path, in one process.

    python docs/examples/notarized.py unix:///run/svc/agent.sock unix:///run/svc/pq.sock 127.0.0.1:7443 notary.db
"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.web.resource import Resource
from twisted.web.server import Site

from svc.embedding import NotarySite, caller_id
from svc.errors import SvcError


class Hello(Resource):
    isLeaf = True

    def render_GET(self, request):
        return f"hello, {caller_id(request)}\n".encode()


async def main(reactor, agent, pq_issuer, address, database):
    try:
        await NotarySite.open(
            Site(Hello()),
            address,
            reactor=reactor,
            trust_domain="prod.example.org",
            allow="spiffe://prod.example.org/*",
            agent=agent,
            pq_issuer=pq_issuer,
            path=database,
        )
    except SvcError as error:
        raise SystemExit(f"{error} ({error.reason}) {error.hint}") from error
    print(f"serving https://{address}/", flush=True)
    await Deferred()


if __name__ == "__main__":
    react(main, sys.argv[1:])
