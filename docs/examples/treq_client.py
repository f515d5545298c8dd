"""
POST with treq, verify the receipt of the exchange, and keep it as an evidence file.

    python docs/examples/treq_client.py unix:///run/svc/agent.sock https://127.0.0.1:7445/notes/today \
        'spiffe://prod.example.org/*' evidence.json
"""

import sys

from treq.client import HTTPClient
from twisted.internet.task import react

from svc.embedding import Workload, exchange_evidence
from svc.errors import SvcError


async def main(reactor, agent, url, server, path):
    try:
        workload = await Workload.open(agent, reactor=reactor)
        client = HTTPClient(workload.http_agent(expect=server, notarization="signRequest"))
        response = await client.post(url, data=b"buy milk")
        print(response.code, await response.text())  # the body is complete only where its receipt verifies
        evidence = await exchange_evidence(response)
        evidence.save(path)
    except SvcError as error:
        raise SystemExit(f"{error} ({error.reason}) {error.hint}") from error
    print(f"receipt {evidence.receipt.id} of {evidence.receipt.issuer}, post-quantum: {evidence.receipt.post_quantum}")


if __name__ == "__main__":
    react(main, sys.argv[1:])
