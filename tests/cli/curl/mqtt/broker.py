"""A broker in memory for the tests of ``svc curl mqtt://``, with artifacts of a test authority."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from svc.cli.curl.mqtt.connection import SubscriberConnection
from svc.cli.curl.mqtt.plan import MqttPlan
from svc.cli.curl.mqtt.run import print_artifacts
from svc.cli.globals import GlobalOptions
from svc.cli.output import Console
from svc.client.subscriber import Subscriber
from svc.client.verification import Trust
from svc.notary.publish import RecordedPublish
from svc.notary.receipt import sign_receipt
from svc.wire.mqtt import Connack, Decoder, Packet, Publish, Suback, Version, encode
from tests.notary.artifacts import COMPLETED, Fixture

STATEMENTS, RECEIPTS = "$.svc/workload", "$.svc/receipt"
#: What click gives for flags that are absent.
ABSENT: Mapping[str, Any] = {
    **dict.fromkeys(("data", "header", "inject_faults", "expect_id", "issuer"), ()),
    **dict.fromkeys(("max_body", "max_time", "save_evidence", "pq_bundle", "profile", "detailed_exit_codes")),
    **dict.fromkeys(
        ("print_workload", "print_receipt", "require_pinned_id", "show_headers", "silent", "verify"), False
    ),
    "request": "GET",
    "output": "text",
}


@cache
def fixture() -> Fixture:
    """The authorities and the server of most tests, made once: keys take time."""
    return Fixture()


def statement_message(made: Fixture | None = None, **changes: Any) -> Publish:
    """The statement of the server, as its proxy publishes it."""
    statement = (made or fixture()).credentials.statement
    message = Publish(f"{STATEMENTS}/{statement.id}", statement.envelope.serialize(), 1, True, packet_id=1)
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def receipt_message(made: Fixture | None = None, exchange: RecordedPublish | None = None, **changes: Any) -> Publish:
    """The receipt of one exchange, or of a message, as its proxy publishes it: without disclosures."""
    made = made or fixture()
    draft = made.draft(exchange)
    envelope = sign_receipt(draft, made.credentials.signers)
    message = Publish(f"{RECEIPTS}/{draft.id}", envelope.serialize(), 1, packet_id=2)
    for name, value in changes.items():
        setattr(message, name, value)
    return message


class Transport(StringTransport):
    """A transport whose ends are recorded; closing it is reported at once."""

    aborted = False
    protocol: SubscriberConnection

    def loseConnection(self) -> None:
        """End in order."""
        if not self.disconnecting:
            super().loseConnection()
            self.protocol.connectionLost(Failure(ConnectionDone()))

    def abortConnection(self) -> None:
        """End at once."""
        self.aborted = True
        self.loseConnection()


class MemoryBroker:
    """
    Implements :class:`svc.cli.curl.mqtt.connection.SubscriptionContext`; the test sends the packets of the broker.

    Args:
        made: whose artifacts can be verified.
    """

    def __init__(self, made: Fixture | None = None) -> None:
        self.clock: Any = Clock()
        self.versions: list[Version] = []
        self.transports: list[Transport] = []
        self.trusted = 0
        self.anchors = (made or fixture()).anchors

    def now(self) -> datetime:
        return COMPLETED

    async def trust(self) -> Trust:
        self.trusted += 1
        return Trust(self.anchors)

    async def connect(self, version: Version) -> SubscriberConnection:
        subscriber = Subscriber(version, (f"{STATEMENTS}/#", f"{RECEIPTS}/#"), server="b:1", client_id="c")
        self.connection = SubscriberConnection(subscriber, "b:1", self.clock)
        self.versions.append(version)
        transport = Transport(peerAddress=IPv4Address("TCP", "192.0.2.1", 1))
        transport.protocol = self.connection
        self.transports.append(transport)
        self.decoder = Decoder("client")
        self.connection.makeConnection(transport)
        return self.connection

    @property
    def transport(self) -> Transport:
        """Of the last connection."""
        return self.transports[-1]

    def send(self, *packets: Packet) -> None:
        """Send packets of the broker in one read."""
        self.connection.dataReceived(b"".join(encode(each, self.versions[-1], "server") for each in packets))

    def grant(self) -> None:
        """Accept the connection and grant the topics."""
        self.send(Connack(), Suback(1, [1, 1]))
        self.sent()

    def sent(self) -> list[object]:
        """What the client has sent since."""
        data = self.transport.value()
        self.transport.clear()
        return list(self.decoder.feed(data))

    def drop(self, reason: Exception | None = None) -> None:
        """Let the connection be lost."""
        self.connection.connectionLost(Failure(reason or ConnectionDone()))


class Run:
    """One run of ``print_artifacts`` at a broker in memory."""

    def __init__(self, *flags: str, broker: MemoryBroker | None = None, **values: Any) -> None:
        self.broker = broker or MemoryBroker()
        self.stdout, self.stderr = io.BytesIO(), io.BytesIO()
        chosen = {**ABSENT, **dict.fromkeys(flags or ("print_workload", "print_receipt"), True), **values}
        plan = MqttPlan.read("mqtt://b:1", chosen, GlobalOptions(), {})
        console = Console(self.stdout, self.stderr, {})
        self.done = Deferred.fromCoroutine(print_artifacts(plan, console, self.broker))

    @property
    def printed(self) -> str:
        """Standard error."""
        return self.stderr.getvalue().decode()
