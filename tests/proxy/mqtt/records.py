"""A recorder of PUBLISH over a store in memory, and the packets of a client and a broker."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from svc.envelope.ids import new_nonce
from svc.envelope.profile import Profile
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import Peer, TlsFacts
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.publish import AckedBy
from svc.notary.receipt import Redaction
from svc.notary.receipt_claims import ReceiptClaims
from svc.notary.record_bound import PublishBound
from svc.proxy.errors import ProxyError
from svc.proxy.mqtt.recorder import PublishExchange, PublishRecorder, PublishRecords
from svc.proxy.records.budget import Allowance, RecordBudget
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.places import RecordPlaces
from svc.proxy.reporter import MessageSummary
from svc.store.records import ReceiptQuery, StoredReceipt
from svc.strictjson import b64u_encode, loads_object
from svc.telemetry.metrics import ProxyMetrics
from svc.testing.store import MemoryStore
from svc.wire.mqtt import Acknowledgement, PacketType, Properties, Publish, QoS, Version
from tests.proxy.rig import BASE, CALLER, OWN

FACTS = WorkloadFacts.explicit(host_name="api-1", namespace="pay", service_account="api")
CREDENTIALS = CredentialSet.issue(OWN, None, FACTS, Profile.CLASSICAL, BASE, os.urandom)
RENEWED = CredentialSet.issue(OWN, None, FACTS, Profile.CLASSICAL, BASE + timedelta(minutes=1), os.urandom)
OWNER = str(CALLER.spiffe_id)
PEER = Peer(CALLER.spiffe_id, b64u_encode(bytes(32)))
TLS = TlsFacts("1.3", "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", pq=True)
SIGN, LOG = Level.SIGN_REQUEST, Level.LOG_REQUEST
NONCES = tuple(new_nonce(bytes([number]) * 16) for number in range(3))
BOUND = PublishBound(head=4096, properties=10, client_id=64)


class Refusals:
    """A reporter that records refusals and failures."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str, str]] = []
        self.recorded_exchanges = True
        self.messages: list[MessageSummary] = []

    def exchange_failed(self, reason: str, peer: str, detail: str, precise: str = "") -> None:
        """Record one."""
        self.failed.append((reason, peer, detail))

    def message_recorded(self, summary: MessageSummary) -> None:
        """Record one."""
        self.messages.append(summary)


class LookupStore(MemoryStore):
    """A store whose reservation of a nonce can wait, and whose look-up by nonce can fail."""

    lookup_failure: Exception | None = None
    #: Where reservations of nonces wait for the test; None where they are made at once.
    answers: list[Deferred[bool]] | None = None

    def reserve(self, client: str, nonce: str) -> Deferred[bool]:
        """Wait where the test has set a list."""
        if self.answers is None:
            return super().reserve(client, nonce)
        self.answers.append(Deferred())
        return self.answers[-1]

    def get_by_request(self, client: str, key: str) -> Any:
        """Fail where the test has set an exception."""
        if self.lookup_failure is not None:
            raise self.lookup_failure
        return super().get_by_request(client, key)


class RecordRig:
    """The records of one listener over a store in memory."""

    def __init__(self, *, burst: float = 1000.0, longest: float = 0.0, max_suspended_octets: int = 2**20) -> None:
        self.clock = Clock()
        self.store = LookupStore()
        self.store.init()
        self.reporter = Refusals()
        self.metrics = ProxyMetrics(CollectorRegistry()).notary("mqtt")
        budget = RecordBudget(Allowance(0.001, burst), Allowance(2**20, 2**30), self.clock, longest)
        self.notarizer = Notarizer(
            self.store,
            database="/var/lib/svc/notary.db",
            redaction=Redaction(),
            places=RecordPlaces(1024, self.clock, longest, budget),
            random=os.urandom,
        )
        self.records = PublishRecords(
            self.notarizer,
            self.metrics,
            cast(Any, self.reporter),
            BOUND,
            wall=self.now,
            seconds=self.clock.seconds,
            max_suspended_octets=max_suspended_octets,
        )

    def now(self) -> datetime:
        """The wall clock."""
        return BASE + timedelta(seconds=self.clock.seconds())

    def recorder(self, **changes: Any) -> PublishRecorder:
        """The recorder of a new connection."""
        facts: dict[str, Any] = {
            "owner": OWNER,
            "client": PEER,
            "credentials": lambda: CREDENTIALS,
            "tls": TLS,
            "version": Version.V5,
            "client_id": "meter-1",
        }
        return PublishRecorder(self.records, **{**facts, **changes})

    def stored(self) -> list[StoredReceipt]:
        """All records."""
        found: list[list[StoredReceipt]] = []
        self.store.find(ReceiptQuery()).addCallback(found.append)
        return found[0]

    def claims(self) -> list[dict[str, Any]]:
        """``svc`` of all records; each of them is read strictly before."""
        payloads = [loads_object(each.payload) for each in self.stored()]
        for each in payloads:
            ReceiptClaims.read(each)
        return [cast("dict[str, Any]", each["svc"]) for each in payloads]


def publish(
    qos: QoS = 1, packet_id: int = 7, *, dup: bool = False, body: bytes = b"21.5", **properties: Any
) -> Publish:
    """A PUBLISH of the meter."""
    return Publish("meters/1/power", body, qos, False, dup, packet_id if qos else 0, Properties(**properties))


def puback(packet_id: int = 7, code: int = 0) -> Acknowledgement:
    """A PUBACK of the broker."""
    return Acknowledgement(PacketType.PUBACK, packet_id, code)


def pubrec(packet_id: int = 7, code: int = 0) -> Acknowledgement:
    """A PUBREC of the broker."""
    return Acknowledgement(PacketType.PUBREC, packet_id, code)


def begun(
    recorder: PublishRecorder, packet: Publish, nonce: str | None = None, level: Level = SIGN
) -> PublishExchange | ProxyError:
    """Begin an exchange that is admitted or refused at once."""
    results: list[PublishExchange | ProxyError] = []
    recorder.begin(packet, level, nonce, results.append)
    (result,) = results
    return result


def completed(
    recorder: PublishRecorder, exchange: object, response: Acknowledgement | None, by: AckedBy = AckedBy.UPSTREAM
) -> str | Failure | None:
    """Complete an exchange whose record is written at once."""
    assert isinstance(exchange, PublishExchange)
    results: list[str | Failure | None] = []
    recorder.complete(exchange, response, by, results.append)
    (result,) = results
    return result
