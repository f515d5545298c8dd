"""Tests of ``svc curl mqtt://`` at a broker in memory: what is printed and acknowledged, and how a run ends."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionLost
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.cli.errors import CommandFailed, OutputFailed
from svc.client.errors import BrokerFailed
from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import printed_id, receipt_id
from svc.identity.spiffeid import SpiffeID
from svc.notary.errors import NotaryRefused
from svc.wire.mqtt import Acknowledgement, Connack, Disconnect, PacketType, Publish, Suback, Version
from tests.cli.curl.mqtt.broker import (
    RECEIPTS,
    STATEMENTS,
    MemoryBroker,
    Run,
    fixture,
    receipt_message,
    statement_message,
)
from tests.notary.artifacts import NO_ANCHORS, SERVER_PATH, message_of, resigned, spiffe_id

SUBSCRIBED = f"svc: subscribed to {STATEMENTS}/# and {RECEIPTS}/# at b:1 by MQTT 5.0\n"


class RunCase(SynchronousTestCase):
    """Runs at a broker in memory."""

    def start(self, *flags: str, **values: Any) -> Run:
        """Begin a run; the topics are granted."""
        run = Run(*flags, **values)
        run.broker.grant()
        self.addCleanup(lambda: self.assertEqual([], run.broker.clock.getDelayedCalls()))
        return run

    def ended(self, run: Run) -> str:
        """The broker ends the connection, and the run is a success; returns what was printed between."""
        run.broker.drop()
        self.assertEqual(0, self.successResultOf(run.done))
        begin, end = SUBSCRIBED, "svc: the broker b:1 closed the connection\n"
        self.assertTrue(run.printed.startswith(begin) and run.printed.endswith(end), run.printed)
        return run.printed[len(begin) : -len(end)]

    def objects(self, run: Run) -> list[Any]:
        """The lines of standard output."""
        return [json.loads(line) for line in run.stdout.getvalue().splitlines()]


class UnverifiedTests(RunCase):
    """Without ``--verify``."""

    def test_reports(self) -> None:
        """Both reports begin with UNVERIFIED and have the fields; trust is not asked for, standard output is empty."""
        run = self.start()
        statement, receipt = statement_message(), receipt_message()
        run.broker.send(statement, receipt)
        printed = self.ended(run)
        first = f"UNVERIFIED Workload Identity Statement {printed_id(statement.topic.rpartition('/')[2])}\n"
        second = f"\nUNVERIFIED Signed Request Receipt {printed_id(receipt.topic.rpartition('/')[2])}\n"
        self.assertTrue(printed.startswith(first), printed[:200])
        self.assertIn(second, printed)
        for line in (
            f"  SPIFFE ID: spiffe://prod.example.org{SERVER_PATH}\n",
            "  Namespace: pay (self-asserted)\n",
            "  Issued At: 2026-11-21T00:25:31Z\n",
            "  Signatures: NOT VERIFIED\n",
            "    Method: POST\n",
            "    Status Code: 200\n",
        ):
            self.assertIn(line, printed)
        self.assertEqual((0, b""), (run.broker.trusted, run.stdout.getvalue()))

    def test_one_kind(self) -> None:
        """Only what was asked for is printed, everything is acknowledged."""
        for flag, title in (("print_workload", "Statement"), ("print_receipt", "Receipt")):
            run = self.start(flag)
            run.broker.send(statement_message(), receipt_message())
            puback = [Acknowledgement(PacketType.PUBACK, number) for number in (1, 2)]
            self.assertEqual(puback, run.broker.sent())
            printed = self.ended(run)
            self.assertEqual(1, printed.count("UNVERIFIED"))
            self.assertIn(title, printed.partition("\n")[0])

    def test_defects(self) -> None:
        """A message that is no envelope is one notice, escaped; a removed retained message is nothing; both go on."""
        run = self.start()
        run.broker.send(
            Publish(f"{STATEMENTS}/\u202ex", b"\x1b[2J"), Publish(f"{STATEMENTS}/x", b""), statement_message()
        )
        printed = self.ended(run)
        self.assertTrue(printed.startswith("svc: the statement \\u202ex cannot be read: the envelope"), printed[:200])
        self.assertNotIn("\x1b", printed)
        self.assertIn("UNVERIFIED", printed)

    def test_json(self) -> None:
        """``-o json`` adds one object a line on standard output; nothing is said to be verified."""
        run = self.start(output="json", print_workload=True, print_receipt=True)
        run.broker.send(statement_message(), receipt_message(), Publish(f"{RECEIPTS}/x", b"?"))
        self.ended(run)
        statement, receipt, broken = self.objects(run)
        self.assertEqual(statement_message().topic, statement["topic"])
        self.assertEqual(statement_message().topic.rpartition("/")[2], statement["workload"]["id"])
        self.assertEqual("signRequest", receipt["receipt"]["claims"]["svc"]["level"])
        self.assertEqual((None, None), (statement["receipt"], receipt["workload"]))
        unverified = {"ok": None, "detail_reason": None, "postQuantum": False}
        self.assertEqual([unverified] * 2, [statement["verification"], receipt["verification"]])
        self.assertEqual((None, False), (broken["receipt"], broken["verification"]["ok"]))
        self.assertEqual("malformed", broken["verification"]["detail_reason"])


class VerifiedTests(RunCase):
    """With ``--verify``."""

    def test_verified(self) -> None:
        """Reports have no mark, and name the signatures; the trust anchors are read before the broker is contacted."""
        run = self.start("print_workload", "print_receipt", "verify", output="json")
        self.assertEqual(1, run.broker.trusted)
        run.broker.send(statement_message(), receipt_message())
        printed = self.ended(run)
        self.assertTrue(printed.startswith("Workload Identity Statement"), printed[:200])
        self.assertIn("\nSigned Request Receipt", printed)
        self.assertEqual(2, printed.count("  Signatures: ES256 valid, ML-DSA-65 valid\n"))
        self.assertNotIn("UNVERIFIED", printed)
        expected = {"ok": True, "detail_reason": None, "postQuantum": True, "profile": "hybrid"}
        self.assertEqual([expected] * 2, [each["verification"] for each in self.objects(run)])

    def test_messages(self) -> None:
        """Receipts of messages are verified like those of exchanges, alone and of a batch; a forged one is refused."""
        made = fixture()
        batched = made.batched(exchange=made.publish(acknowledgement=None, message=message_of(qos=0, packet_id=0)))
        delivered = dataclasses.replace(batched, extra={}).serialize()
        run = self.start("print_workload", "print_receipt", "verify", output="json")
        run.broker.send(
            statement_message(),
            receipt_message(exchange=made.publish()),
            Publish(f"{RECEIPTS}/{receipt_id(batched.payload)}", delivered, 1, packet_id=3),
        )
        printed = self.ended(run)
        self.assertEqual(2, printed.count("    Topic: meters/1/power\n"))
        self.assertIn("  Signed Together: receipt 2 of 3 in a batch", printed)
        self.assertEqual([True] * 3, [each["verification"]["ok"] for each in self.objects(run)])
        signers = made.credentials.signers
        mixed = resigned(made.receipt(made.publish()), naming.TYPE_RECEIPT, signers, svc__request__method="POST")
        mixed = dataclasses.replace(mixed, extra={})
        topic = f"{RECEIPTS}/{receipt_id(mixed.payload)}"
        run = self.failed(statement_message(), Publish(topic, mixed.serialize(), 1, packet_id=3))
        self.assertIn(" (malformed)\n", run.printed)
        self.assertNotIn("meters/1/power", run.printed)

    def test_no_trust(self) -> None:
        """Without trust anchors the broker is never contacted."""

        class Untrusting(MemoryBroker):
            async def trust(self) -> Any:
                raise NotaryRefused("no_anchor")

        run = Run("print_workload", "verify", broker=Untrusting())
        self.failureResultOf(run.done, EnvelopeError)
        self.assertEqual([], run.broker.versions)

    def failed(self, *packets: Publish, status: int = 1, **values: Any) -> Run:
        """A run that ends with a failed verification."""
        run = self.start("print_workload", "print_receipt", "verify", **values)
        run.broker.send(*packets)
        run.broker.drop()
        error = self.failureResultOf(run.done, CommandFailed).value
        self.assertEqual((status, "artifacts_refused"), (error.status, error.error.reason))
        self.last = str(error.error)
        return run

    def test_failed(self) -> None:
        """Of an artifact that fails only the reason is shown; the run goes on, and fails at its end."""
        forged = statement_message(topic=f"{STATEMENTS}/{'x' * 43}")
        run = self.failed(forged, statement_message(packet_id=3), output="json")
        self.assertEqual("1 of 2 artifacts failed the verification", self.last)
        self.assertIn(f"svc: the statement {'x' * 43} is not verified: ", run.printed)
        self.assertIn(" (id_mismatch)\n", run.printed)
        self.assertEqual(1, run.printed.count("Raw Claims"))
        refused, verified = self.objects(run)
        self.assertEqual((None, False), (refused["workload"], refused["verification"]["ok"]))
        self.assertEqual("id_mismatch", refused["verification"]["detail_reason"])
        self.assertTrue(verified["verification"]["ok"])

    def test_statuses(self) -> None:
        """With detailed exit codes 2 means a statement, 3 receipts alone; without them all is 1."""
        statement, receipt = statement_message(topic=f"{STATEMENTS}/x"), receipt_message(topic=f"{RECEIPTS}/x")
        good = statement_message(packet_id=3)
        self.failed(good, receipt, status=1)
        self.failed(good, receipt, status=3, detailed_exit_codes=True)
        self.failed(good, receipt, statement, status=2, detailed_exit_codes=True)

    def test_not_printed(self) -> None:
        """What is not printed does not count, though a statement is used for receipts."""
        run = self.start("print_receipt", "verify")
        run.broker.send(statement_message(topic=f"{STATEMENTS}/x"), statement_message(packet_id=3), receipt_message())
        self.assertTrue(self.ended(run).startswith("Signed Request Receipt"))

    def test_waiting(self) -> None:
        """A receipt that waits is named at once, acknowledged, and printed after its statement; else it fails."""
        run = self.start("print_workload", "print_receipt", "verify")
        run.broker.send(receipt_message())
        self.assertEqual([Acknowledgement(PacketType.PUBACK, 2)], run.broker.sent())
        self.assertIn(" waits for its statement\n", run.printed)
        run.broker.send(statement_message())
        self.assertIn("Signed Request Receipt", self.ended(run))
        never = self.failed(receipt_message())
        self.assertIn("(statement_missing)\n", never.printed)

    def test_withdrawn_roots(self) -> None:
        """The trust anchors that are in force count, for each artifact."""
        run = self.start("print_workload", "verify")
        run.broker.send(statement_message())
        run.broker.anchors = NO_ANCHORS
        run.broker.send(statement_message(packet_id=3))
        run.broker.drop()
        self.failureResultOf(run.done, CommandFailed)
        self.assertIn("(trust_domain_unknown)\n", run.printed)

    def test_expected(self) -> None:
        """``--expect-id`` is the identity of the workload."""
        self.failed(statement_message(), expect_id=("spiffe://prod.example.org/other",))
        run = self.start("print_workload", "verify", expect_id=(str(spiffe_id(SERVER_PATH)),))
        run.broker.send(statement_message())
        self.assertIn(str(SpiffeID.parse(str(spiffe_id(SERVER_PATH)))), self.ended(run))


class EndingTests(RunCase):
    """How a run begins and ends."""

    def test_interrupted(self) -> None:
        """An interrupt ends the connection in order, without a message, and is a success."""
        run = self.start()
        run.broker.send(statement_message())
        run.broker.sent()
        printed = run.printed
        run.done.cancel()
        self.assertEqual(0, self.successResultOf(run.done))
        self.assertEqual([Disconnect()], run.broker.sent())
        self.assertEqual(printed, run.printed)

    def test_interrupted_before_the_grant(self) -> None:
        """Before the topics are granted an interrupt is no success; the connection is closed."""
        run = Run()
        run.broker.send(Connack())
        run.done.cancel()
        self.failureResultOf(run.done, CancelledError)
        self.assertTrue(run.broker.transport.disconnecting)
        self.assertEqual([], run.broker.clock.getDelayedCalls())

    def test_interrupted_with_failures(self) -> None:
        """Artifacts that failed the verification are no success, however the run ends."""
        run = self.start("print_workload", "verify")
        run.broker.send(statement_message(topic=f"{STATEMENTS}/x"))
        run.done.cancel()
        self.failureResultOf(run.done, CommandFailed)

    def test_killed(self) -> None:
        """A broker that is gone ends the run; there is no second connection."""
        run = self.start()
        run.broker.drop(ConnectionLost())
        self.assertEqual(0, self.successResultOf(run.done))
        self.assertEqual([Version.V5], run.broker.versions)

    def test_disconnected(self) -> None:
        """The reason of a DISCONNECT is printed."""
        run = self.start()
        run.broker.send(Disconnect(0x8B))
        self.assertEqual(0, self.successResultOf(run.done))
        self.assertIn("svc: the broker b:1 closed the connection: server shutting down (0x8b)\n", run.printed)

    def test_older_broker(self) -> None:
        """A broker without MQTT 5.0 is contacted again with MQTT 3.1.1, on a new connection, once."""
        run = Run()
        run.broker.connection.dataReceived(b"\x20\x02\x00\x01")
        self.assertTrue(run.broker.transports[0].disconnecting)
        self.assertEqual([Version.V5, Version.V311], run.broker.versions)
        run.broker.send(Connack(), Suback(1, [0, 0]))
        self.assertIn("by MQTT 3.1.1\n", run.printed)
        run.broker.drop()
        self.assertEqual(0, self.successResultOf(run.done))
        again = Run()
        for _ in range(2):
            again.broker.connection.dataReceived(b"\x20\x02\x00\x01")
        self.failureResultOf(again.done, BrokerFailed)
        self.assertEqual([Version.V5, Version.V311], again.broker.versions)

    def test_refused(self) -> None:
        """Refusals of the connection and of a topic are errors."""
        for packets, reason in (
            ([Connack(code=0x86)], "mqtt_connection_refused"),
            ([Connack(), Suback(1, [1, 0x87])], "mqtt_subscription_refused"),
        ):
            run = Run()
            run.broker.send(*packets)
            self.assertEqual(reason, self.failureResultOf(run.done, BrokerFailed).value.reason)
            self.assertTrue(run.broker.transport.disconnecting)

    def test_output_fails(self) -> None:
        """A standard error that takes nothing ends the run as an error: it is the output here."""
        run = self.start()
        run.stderr.close()
        run.broker.send(statement_message())
        self.failureResultOf(run.done, OutputFailed)
        self.assertTrue(run.broker.transport.disconnecting)
