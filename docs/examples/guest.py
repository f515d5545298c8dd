"""
Call the greeter: connect to exactly the workload that is expected, and show the own statement.

    python docs/examples/guest.py unix:///run/svc/agent.sock unix:///run/svc/pq.sock 127.0.0.1:7000 \
        spiffe://prod.example.org/ns/demo/sa/greeter
"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.task import react
from twisted.protocols.basic import NetstringReceiver

from svc.embedding import Workload
from svc.errors import SvcError


class Guest(NetstringReceiver):
    def __init__(self):
        self.answer = Deferred()

    def stringReceived(self, answer):
        self.answer.callback(answer.decode())

    def connectionLost(self, reason=connectionDone):
        if not self.answer.called:  # in TLS 1.3 the typed reason of a refused client comes here
            self.answer.errback(reason)


async def main(reactor, agent, pq_issuer, address, greeter):
    try:
        workload = await Workload.open(agent, reactor=reactor, pq_issuer=pq_issuer)
        guest = await workload.client_endpoint(address, expect=greeter).connect(Factory.forProtocol(Guest))
        guest.sendString(workload.statement(guest.transport))
        print(await guest.answer)
    except SvcError as error:
        raise SystemExit(f"{error} ({error.reason}) {error.hint}") from error


if __name__ == "__main__":
    react(main, sys.argv[1:])
