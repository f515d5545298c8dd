"""
Serve a protocol of your own behind SPIFFE mutual TLS, and greet each caller by what its statement proves.

    python docs/examples/greeter.py unix:///run/svc/agent.sock 127.0.0.1:7000 'spiffe://prod.example.org/*'
"""

import sys

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.internet.task import react
from twisted.protocols.basic import NetstringReceiver

from svc.embedding import Workload
from svc.errors import SvcError


class Greeter(NetstringReceiver):
    MAX_LENGTH = 256 * 1024

    def __init__(self, workload):
        self.workload = workload

    def stringReceived(self, statement):
        try:
            caller = self.workload.verify_statement(statement, self.transport)
        except SvcError as error:
            self.sendString(f"refused: {error.reason}".encode())
        else:
            self.sendString(f"welcome, {caller.subject}, post-quantum: {caller.post_quantum}".encode())
        self.transport.loseConnection()


async def main(reactor, agent, address, guests):
    workload = await Workload.open(agent, reactor=reactor)
    endpoint = workload.server_endpoint(address, allow=guests)
    await endpoint.listen(Factory.forProtocol(lambda: Greeter(workload)))
    print(f"{workload.spiffe_id} listens at {address}", flush=True)
    await Deferred()


if __name__ == "__main__":
    react(main, sys.argv[1:])
