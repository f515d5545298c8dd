"""
Run an MQTT broker inside of a program: plain for this machine, by SPIFFE identity for others, and publish to both.

    python docs/examples/brokered.py unix:///run/svc/agent.sock 127.0.0.1:8883 127.0.0.1:1883
"""

import sys
from datetime import UTC, datetime

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, react

from svc.broker import AccessRule, Broker, Rules, anonymous, verified
from svc.embedding import Workload
from svc.identity import parse_matcher
from svc.transport import PlainServerEndpoint, parse_address

GUESTS = parse_matcher("spiffe://prod.example.org/*")
RULES = Rules(
    [
        AccessRule(None, subscribe=["time", "devices/#"]),  # any client of this machine may subscribe
        AccessRule(GUESTS, publish=["devices/+/state"], subscribe=["time"]),
    ]
)


async def main(reactor, agent, address, local):
    workload = await Workload.open(agent, reactor=reactor)
    broker = Broker(reactor, RULES)
    broker.startService()
    reactor.addSystemEventTrigger("before", "shutdown", broker.stopService)
    await workload.server_endpoint(address, allow=GUESTS).listen(broker.factory(verified()))
    await PlainServerEndpoint(reactor, parse_address(local)).listen(broker.factory(anonymous()))

    def each_second():
        broker.end_expired(datetime.now(UTC))  # of clients that have not renewed their SVIDs
        broker.publish("time", datetime.now(UTC).isoformat().encode(), retain=True)

    LoopingCall(each_second).start(1)
    print(f"{workload.spiffe_id} serves MQTT at {address}", flush=True)
    await Deferred()


if __name__ == "__main__":
    react(main, sys.argv[1:])
