"""
GET from a service behind svc-proxy or a NotarySite, and use its response only when its workload statement verifies.

    python docs/examples/statement.py unix:///run/svc/agent.sock https://127.0.0.1:7443/ 'spiffe://prod.example.org/*'
"""

import sys

from twisted.internet.task import react

from svc.embedding import Workload
from svc.errors import SvcError


async def main(reactor, agent, url, server):
    try:
        workload = await Workload.open(agent, reactor=reactor)
        response = await workload.get(url, expect=server)
    except SvcError as error:
        raise SystemExit(f"{error} ({error.reason}) {error.hint}") from error
    print(f"{response.status}, {len(response.body)} octets from {response.statement.subject}")
    print(f"statement {response.statement.id}, post-quantum: {response.statement.post_quantum}")


if __name__ == "__main__":
    react(main, sys.argv[1:])
