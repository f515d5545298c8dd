"""
Serve a Klein application through the notary: the application is as it was, and every response can be proved.

    python docs/examples/klein_app.py unix:///run/svc/agent.sock unix:///run/svc/pq.sock 127.0.0.1:7445 notary.db
"""

import sys

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.web.server import Site

from svc.embedding import NotarySite, caller_id
from svc.errors import SvcError

app = Klein()


@app.route("/notes/<name>", methods=["POST"])
def write(request, name):
    return f"{caller_id(request)} wrote {len(request.content.read())} octets to {name}"


async def main(reactor, agent, pq_issuer, address, database):
    try:
        await NotarySite.open(
            Site(app.resource()),
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
