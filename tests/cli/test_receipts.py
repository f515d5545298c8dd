"""``svc receipts`` with a database of this machine, and how it reads the answers of a proxy."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.cli.errors import UsageRefused
from svc.cli.globals import GlobalOptions
from svc.cli.receipts.errors import RecordError
from svc.cli.receipts.exporting import ExportResult, _export
from svc.cli.receipts.listing import SummaryList, table
from svc.cli.receipts.plan import Page
from svc.cli.receipts.remote import MAX_PAGES, NotarySource
from svc.cli.receipts.showing import ShowPlan
from svc.envelope.ids import printed_id, receipt_id
from svc.identity.pqbundle import PqBundles
from svc.notary.access import problem
from svc.notary.evidence import EvidenceFile
from svc.notary.exchange import ExchangeOutcome, RecordedExchange
from svc.notary.level import Level
from svc.notary.receipt import ReceiptDraft, sign_receipt
from svc.reports.summary import receipt_summary
from svc.store.records import ReceiptQuery, RecordPosition, StoredReceipt
from svc.store.sqlite import SqliteStore
from svc.strictjson import b64u_encode
from tests.cli.doubles import Ran, run_svc
from tests.notary.artifacts import COMPLETED, JTI, NONCE, Fixture, message_of
from tests.store.doubles import InlineReactor, InlineThread

FIXTURE = Fixture()
CLIENT = str(FIXTURE.client_svid.spiffe_id)


def drafted(number: int, **changes: Any) -> tuple[RecordedExchange, ReceiptDraft]:
    """An exchange that ended at a second of its own, and its payload."""
    exchange = FIXTURE.exchange(**changes)
    moved = dataclasses.replace(exchange, completed=exchange.completed.replace(second=40 + number))
    return moved, FIXTURE.draft(moved)


def record(number: int, **changes: Any) -> StoredReceipt:
    """One record of the fixture's workload, one second younger than the one before."""
    nonce, jti = (b64u_encode(bytes((kind, number)) * 8) for kind in (1, 2))
    moved, draft = drafted(number, **{"nonce": nonce, "jti": jti, **changes})
    signed = moved.level is Level.SIGN_REQUEST
    return StoredReceipt(
        id=draft.id,
        level=moved.level.value,
        client=CLIENT,
        server=str(FIXTURE.svid.spiffe_id),
        nonce=moved.nonce,
        jti=moved.jti,
        issued_at=draft.issued_at,
        outcome=moved.outcome.value,
        envelope=sign_receipt(draft, FIXTURE.credentials.signers).serialize() if signed else None,
        payload=draft.payload,
        disclosures=draft.disclosures,
    )


def message_record() -> StoredReceipt:
    """The record of a message of MQTT, the youngest."""
    publish = FIXTURE.publish(message=message_of(nonce=None), completed=COMPLETED.replace(second=50))
    draft = FIXTURE.draft(publish)
    return dataclasses.replace(
        record(9),
        id=draft.id,
        nonce=None,
        jti=draft.jti,
        issued_at=draft.issued_at,
        envelope=sign_receipt(draft, FIXTURE.credentials.signers).serialize(),
        payload=draft.payload,
        disclosures=draft.disclosures,
    )


RECORDS = (
    record(0),
    record(1, path="/v1/other", status=503),
    record(2, level=Level.LOG_REQUEST, status=None, outcome=ExchangeOutcome.CLIENT_ABORTED),
)


class ReceiptsTestCase(SynchronousTestCase):
    """A database with three records, and the roots to verify them."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.database = self.folder / "notary.db"
        self.fill(self.database)

    def fill(self, path: Path, *, statement: bool = True, records: tuple[StoredReceipt, ...] = RECORDS) -> None:
        """Write a database."""
        store = SqliteStore(str(path), reactor=InlineReactor(), reserve_size=0, start_thread=InlineThread)
        store.init()
        if statement:
            self.successResultOf(store.put_statement(FIXTURE.credentials.statement))
        for each in records:
            self.successResultOf(store.put_receipt(each))
        self.successResultOf(store.close())

    def write(self, name: str, data: bytes) -> str:
        """Write a file that its owner alone may change."""
        path = self.folder / name
        path.write_bytes(data)
        path.chmod(0o644)
        return str(path)

    def anchors(self) -> tuple[str, ...]:
        """The flags that name the roots."""
        roots = self.write("roots.pem", FIXTURE.authority.certificate.public_bytes(Encoding.PEM))
        pq = self.write("pq.json", PqBundles().with_bundle(FIXTURE.pq_authority.bundle()).serialize())
        return (
            "--trust-bundle",
            roots,
            "--trust-domain",
            FIXTURE.authority.bundle().trust_domain.name,
            "--pq-bundle",
            pq,
        )

    def run_on(self, verb: str, *words: str, status: int = 0, database: Path | None = None) -> Ran:
        """Run a command on the database; it must end with the status."""
        ran = run_svc("receipts", verb, "--notary", str(database or self.database), *words)
        self.assertEqual(status, ran.status, ran.stderr)
        return ran


class ListTests(ReceiptsTestCase):
    """``svc receipts list``."""

    def listed(self, *words: str) -> list[str]:
        """The ids that are listed."""
        return [json.loads(line)["id"] for line in self.run_on("list", "-o", "json", *words).stdout.splitlines()]

    def test_table(self) -> None:
        """The newest first, one line each below the headings, values whole where there is no terminal."""
        ran = self.run_on("list")
        heading, *lines = ran.stdout.decode().splitlines()
        self.assertEqual(["TIME", "LEVEL", "CLIENT", "METHOD", "PATH", "STATUS", "OUTCOME", "ID"], heading.split())
        self.assertEqual([each.id for each in reversed(RECORDS)], [line.split()[-1] for line in lines])
        self.assertEqual(["logRequest", CLIENT, "POST", "/v1/transfer", "-", "client_aborted"], lines[0].split()[1:-1])
        self.assertEqual(["signRequest", CLIENT, "POST", "/v1/other", "503", "complete"], lines[1].split()[1:-1])
        self.assertEqual("", ran.stderr)

    def test_json(self) -> None:
        """One object a line, as the notary lists it."""
        lines = self.run_on("list", "-o", "json").stdout.splitlines()
        self.assertEqual(
            [receipt_summary(each.id, each.payload) for each in reversed(RECORDS)], [json.loads(each) for each in lines]
        )

    def test_filters(self) -> None:
        """Each filter selects."""
        first, second, third = (each.id for each in RECORDS)
        for words, expected in (
            (("--status", "5xx"), [second]),
            (("--status", "200"), [first]),
            (("--outcome", "client_aborted"), [third]),
            (("--path", "/v1/o"), [second]),
            (("--path", "*/transfer"), [third, first]),
            (("--client", CLIENT), [third, second, first]),
            (("--client", "spiffe://example.org/none"), []),
            (("--since", "1m"), []),
            (("--since", "36500d"), [third, second, first]),
            (("--until", "2026-11-21T00:25:41Z", "--since", "2026-11-21T00:25:40Z"), [first]),
            (("--limit", "2"), [third, second]),
        ):
            self.assertEqual(expected, self.listed(*words), words)

    def test_nothing(self) -> None:
        """An empty list is said, and is no error."""
        ran = self.run_on("list", "--status", "404")
        self.assertEqual(b"", ran.stdout)
        self.assertEqual(
            f"svc: the notary database {self.database} has no record that matches;"
            " only requests at the levels logRequest and signRequest are recorded\n",
            ran.stderr,
        )

    def test_more(self) -> None:
        """That a list was ended by its limit is said."""
        ran = self.run_on("list", "--limit", "1")
        self.assertIn("the newest 1 are shown, down to 2026-11-21T00:25:42Z; there may be more", ran.stderr)
        self.assertIn("--until", ran.stderr)

    def test_configuration(self) -> None:
        """The database is found in the configuration of the proxy, whatever else that has."""
        path = self.write("proxy.yaml", f"notary:\n  path: {self.database}\n  future: 1\nother: []\n".encode())
        ran = run_svc("receipts", "list", "--config", path)
        self.assertEqual((0, 4), (ran.status, len(ran.stdout.splitlines())))
        for text, defect in (
            ("other: 1", "it has no section notary"),
            ("notary: {path: 1}", "notary.path is 1"),
            ("spiffeSocketPath: 1\nnotary: {}", "spiffeSocketPath is 1"),
            ("notary: {pqBundle: ''}", "notary.pqBundle is ''"),
            ("[", "line 1, column 2"),
            ("notary: {database: 'postgresql://a:b@h/d'}", "the URL of the database cannot be used"),
        ):
            ran = run_svc("receipts", "list", "--config", self.write("proxy.yaml", text.encode()))
            self.assertEqual(1, ran.status)
            self.assertIn(defect, ran.stderr)

    def test_hostile_values(self) -> None:
        """A path cannot move the cursor of a terminal or forge a line."""
        path = self.folder / "hostile.db"
        self.fill(path, records=(record(5, path="/\x1b[2J\n\x9b31m/é"),))
        out = self.run_on("list", database=path).stdout
        self.assertEqual(2, len(out.splitlines()))
        self.assertNotIn(b"\x1b", out)
        self.assertIn(rb"/\x1b[2J\x0a\x9b31m/", out)


class MessageTests(ReceiptsTestCase):
    """Records of messages of MQTT beside those of exchanges."""

    def setUp(self) -> None:
        super().setUp()
        self.message = message_record()
        self.database = self.folder / "messages.db"
        self.fill(self.database, records=(*RECORDS, self.message))

    def test_list(self) -> None:
        """Packet, topic and reason code stand in place of method, path and status."""
        lines = self.run_on("list").stdout.decode().splitlines()
        self.assertEqual(
            ["signRequest", CLIENT, "PUBLISH", "meters/1/power", "0x00", "complete", self.message.id],
            lines[1].split()[1:],
        )
        for words, expected in ((("--topic", "meters/"), 1), (("--topic", "*/power"), 1), (("--topic", "x"), 0)):
            found = self.run_on("list", "-o", "json", *words).stdout.splitlines()
            self.assertEqual([self.message.id] * expected, [json.loads(each)["id"] for each in found])
        self.assertEqual(3, len(self.run_on("list", "-o", "json", "--path", "*").stdout.splitlines()))
        ran = run_svc("receipts", "list", "--notary", str(self.database), "--topic", "")
        self.assertEqual(1, ran.status)

    def test_narrow(self) -> None:
        """A topic is cut at its end, like a path."""
        row = {**receipt_summary(self.message.id, self.message.payload), "topic": "a" * 300}
        self.assertRegex(table([row], 120)[1], " a+… ")

    def test_show_and_export(self) -> None:
        """It is shown with its topic, and exported as evidence that is verified."""
        text = self.run_on("show", self.message.id, *self.anchors()).stdout.decode()
        self.assertIn("    Topic: meters/1/power\n", text)
        self.assertIn("  Signatures: ES256 valid, ML-DSA-65 valid\n", text)
        folder = self.folder / "out"
        self.run_on("export", "--topic", "meters", "--output", str(folder))
        (file,) = folder.iterdir()
        self.assertEqual(0, run_svc("verify", *self.anchors(), str(file)).status)
        ran = run_svc("verify", *self.anchors(), "--html", str(file))
        self.assertEqual((0, True), (ran.status, b"published to meters/1/power with QoS 1" in ran.stdout))


class TableTests(SynchronousTestCase):
    """How a table fits a terminal."""

    CLIENT = f"spiffe://example.org/{'a' * 60}/end"
    ROW = {**receipt_summary(RECORDS[1].id, RECORDS[1].payload), "client": CLIENT, "path": f"/{'b' * 90}"}

    def test_narrow(self) -> None:
        """The id is cut to its beginning, the client at its front, the path at its end; other columns stay whole."""
        heading, line = table([self.ROW], 120)
        self.assertLessEqual(max(len(heading), len(line)), 120)
        self.assertTrue(line.endswith(f"  {RECORDS[1].id[:12]}"))
        self.assertRegex(line, r" …a+/end +POST +/b+… +503 +complete ")

    def test_wide(self) -> None:
        """Where everything fits, everything is shown."""
        line = table([self.ROW], 400)[1]
        self.assertIn(self.CLIENT, line)
        self.assertTrue(line.endswith(RECORDS[1].id))

    def test_usual(self) -> None:
        """On 80 columns level and outcome are left out, so that a record is one line; on 90 the level is enough."""
        heading, line = table([self.ROW], 80)
        self.assertEqual("TIME CLIENT METHOD PATH STATUS ID", " ".join(heading.split()))
        self.assertLessEqual(max(len(heading), len(line)), 80)
        heading, line = table([self.ROW], 90)
        self.assertEqual("TIME CLIENT METHOD PATH STATUS OUTCOME ID", " ".join(heading.split()))
        self.assertLessEqual(max(len(heading), len(line)), 90)

    def test_very_narrow(self) -> None:
        """On the narrowest terminal the columns that identify a record are still there."""
        heading, line = table([self.ROW], 20)
        self.assertEqual(6, len(heading.split()))
        self.assertEqual(6, len(line.split()))

    def test_file(self) -> None:
        """Into a file or pipe every value is written whole, and one long path does not widen the other lines."""
        long = {**self.ROW, "path": f"/{'c' * 1000}"}
        heading, first, second = table([self.ROW, long], None)
        self.assertIn(long["path"], second)
        self.assertLess(len(heading), 300)
        self.assertTrue(first.endswith(RECORDS[1].id))
        self.assertTrue(second.endswith(RECORDS[1].id))


class ShowTests(ReceiptsTestCase):
    """``svc receipts show``."""

    def test_verified(self) -> None:
        """A receipt is found by any of its names and verified."""
        first = RECORDS[0]
        anchors = self.anchors()
        for key in (first.id, first.id[:8], printed_id(first.id), str(first.nonce), first.jti):
            ran = self.run_on("show", *anchors, "--", key)
            text = ran.stdout.decode()
            self.assertTrue(text.startswith(f"Signed Request Receipt {printed_id(first.id)}\n"), text)
            self.assertIn("  Signatures: ES256 valid, ML-DSA-65 valid\n", text)
            self.assertIn("time asserted", ran.stderr)

    def test_verified_in_a_batch(self) -> None:
        """A receipt that was signed with others is found, verified and exported like one that was signed alone."""
        made = FIXTURE.batched(exchange=drafted(3)[0])
        name = receipt_id(made.payload)
        stored = dataclasses.replace(
            RECORDS[0],
            id=name,
            nonce=None,
            jti="batched",
            envelope=None,
            payload=made.payload,
            disclosures=cast("dict[str, object] | None", made.extra.get("disclosures")),
            batch=made.batch.serialize(),
            inclusion=made.inclusion.to_octets(),
        )
        path = self.folder / "batched.db"
        self.fill(path, records=(stored,))
        text = self.run_on("show", *self.anchors(), "--", name, database=path).stdout.decode()
        self.assertIn("  Signatures: ES256 valid, ML-DSA-65 valid\n", text)
        file = self.folder / "batched.json"
        self.run_on("export", "--output", str(file), "--", name, database=path)
        self.assertEqual(0, run_svc("verify", *self.anchors(), str(file)).status)

    def test_id_with_a_dash(self) -> None:
        """An id that begins like a flag is an id."""
        # One id in 64 does; the bound is never reached.
        names = {"nonce": NONCE, "jti": JTI}
        paths = (f"/{number}" for number in range(10_000))
        path = next(each for each in paths if re.match("-[^-]", drafted(0, path=each, **names)[1].id))
        dashed = record(0, path=path, **names)
        database = self.folder / "dashed.db"
        self.fill(database, records=(dashed,))
        for key in (dashed.id, f"{dashed.id}=", dashed.id[:12]):
            self.run_on("show", key, *self.anchors(), database=database)
        self.run_on("export", dashed.id, "--output", str(self.folder / "dashed.json"), database=database)

    def test_without_roots(self) -> None:
        """A receipt that cannot be verified is shown as not verified, with the reason, and the status is 1."""
        roots = self.anchors()
        pq = self.write("other.json", PqBundles().serialize())
        ran = self.run_on("show", RECORDS[0].id, *roots[:4], "--pq-bundle", pq, status=1)
        self.assertIn("  Signatures: NOT VERIFIED (", ran.stdout.decode())
        self.assertIn("(trust_domain_unknown)", ran.stderr)
        ran = self.run_on("show", RECORDS[0].id, status=1)
        self.assertIn("NOT VERIFIED", ran.stdout.decode())
        self.assertIn("(no_anchor)", ran.stderr)

    def test_roots_of_the_configuration(self) -> None:
        """The Workload API and the post-quantum roots are those of the configuration, unless others are named."""
        config = self.write("proxy.yaml", b"spiffeSocketPath: unix:///c/s\nnotary: {pqBundle: /c/pq.json}\n")
        named = GlobalOptions(spiffe_socket="unix:///o/s", socket_given=True)
        environ = {naming.ENV_PQ_BUNDLE: "/e/pq.json"}
        absent: dict[str, object] = dict.fromkeys(("notary", "from", "profile", "pq_bundle", "trust_domain", "output"))
        absent |= {"html": False, "require_trusted_time": False, "expect_id": (), "issuer": ()}
        for options, trust_bundle, env, socket, pq_bundle in (
            (GlobalOptions(), (), {}, "unix:///c/s", "/c/pq.json"),
            (named, (), {}, "unix:///o/s", "/c/pq.json"),
            (GlobalOptions(), (), environ, "unix:///c/s", "/e/pq.json"),
            # An archive has both kinds of roots.
            (GlobalOptions(), ("archive.json",), {}, "unix:///c/s", None),
        ):
            values = {**absent, "config": config, "trust_bundle": trust_bundle}
            plan = ShowPlan.read("a", values, options, env).verify
            self.assertEqual((socket, pq_bundle), (plan.options.spiffe_socket, plan.pq_bundle))

    def test_unsigned(self) -> None:
        """A record of level logRequest is shown as what it is."""
        ran = self.run_on("show", RECORDS[2].id)
        text = ran.stdout.decode()
        self.assertTrue(text.startswith(f"Unsigned Request Record {printed_id(RECORDS[2].id)}\n"), text)
        self.assertIn("  Signatures: none (level logRequest)\n", text)
        document = json.loads(self.run_on("show", "-o", "json", RECORDS[2].id).stdout)
        self.assertEqual((False, None), (document["record"]["signed"], document["verification"]))

    def test_json(self) -> None:
        """One object with the record and what was verified, or why it was not."""
        found = json.loads(self.run_on("show", "-o", "json", RECORDS[1].id, *self.anchors()).stdout)
        self.assertEqual(["record", "workload", "receipt", "verification"], list(found))
        self.assertEqual((RECORDS[1].id, True), (found["record"]["id"], found["record"]["signed"]))
        self.assertEqual(found["record"]["claims"], found["receipt"]["claims"])
        self.assertEqual((True, None), (found["verification"]["ok"], found["verification"]["detail_reason"]))
        ran = self.run_on("show", "-o", "json", RECORDS[1].id, *self.anchors(), "--expect-id", CLIENT, status=1)
        found = json.loads(ran.stdout)
        self.assertEqual((None, False), (found["receipt"], found["verification"]["ok"]))
        self.assertEqual("identity_unexpected", found["verification"]["detail_reason"])
        self.assertEqual(503, found["record"]["claims"]["svc"]["response"]["status"])

    def test_html(self) -> None:
        """A page for a browser, whatever the record is."""
        for key, words, status in (
            (RECORDS[0].id, (), 0),
            (RECORDS[0].id, ("--expect-id", CLIENT), 1),
            (RECORDS[2].id, (), 0),
        ):
            ran = self.run_on("show", "--html", key, *self.anchors(), *words, status=status)
            self.assertTrue(ran.stdout.startswith(b"<!DOCTYPE html>"))

    def test_statement_gone(self) -> None:
        """Without the statement a receipt cannot be verified, and that is said."""
        path = self.folder / "gone.db"
        self.fill(path, statement=False)
        ran = self.run_on("show", RECORDS[0].id, *self.anchors(), status=1, database=path)
        self.assertIn("NOT VERIFIED", ran.stdout.decode())
        self.assertIn("has no more the statement", ran.stderr)

    def test_altered(self) -> None:
        """A record whose payload is not what its id says is refused."""
        path = self.folder / "altered.db"
        self.fill(path, records=(dataclasses.replace(RECORDS[0], id=RECORDS[1].id),))
        ran = self.run_on("show", RECORDS[1].id, *self.anchors(), status=1, database=path)
        self.assertEqual(b"", ran.stdout)
        self.assertIn("(record_altered)", ran.stderr)

    def test_not_found(self) -> None:
        """A name that nothing has, that several have, and that is none."""
        self.assertIn("(record_missing)", self.run_on("show", "A" * 43, status=1).stderr)
        self.assertIn("(record_missing)", self.run_on("show", "zzzzzzzz", status=1).stderr)
        self.assertIn("is not an identifier", self.run_on("show", "a b", status=1).stderr)
        path = self.folder / "twice.db"
        others = (
            dataclasses.replace(RECORDS[0], client="spiffe://example.org/a"),
            dataclasses.replace(RECORDS[1], nonce=RECORDS[0].nonce),
        )
        self.fill(path, records=others)
        ran = self.run_on("show", str(RECORDS[0].nonce), status=1, database=path)
        self.assertIn("(record_ambiguous)", ran.stderr)
        self.assertIn(RECORDS[1].id, ran.stderr)


class ExportTests(ReceiptsTestCase):
    """``svc receipts export``."""

    def setUp(self) -> None:
        super().setUp()
        self.output = self.folder / "evidence"

    def names(self) -> list[str]:
        """The files that were written."""
        return sorted(each.name for each in self.output.iterdir())

    def test_all(self) -> None:
        """Every signed receipt is a file that svc verify accepts; a second run changes nothing."""
        ran = self.run_on("export", "--output", str(self.output))
        self.assertEqual(f"exported 2 receipts to {self.output}\n", ran.stdout.decode())
        self.assertEqual(sorted(f"{each.id}.json" for each in RECORDS[:2]), self.names())
        for name in self.names():
            path = self.output / name
            self.assertEqual(0o600, path.stat().st_mode & 0o777)
            self.assertEqual(0, run_svc("verify", *self.anchors(), str(path)).status)
        before = {name: (self.output / name).stat().st_mtime_ns for name in self.names()}
        ran = self.run_on("export", "--output", str(self.output))
        self.assertEqual(f"exported 2 receipts to {self.output} (2 were there already)\n", ran.stdout.decode())
        self.assertEqual(before, {name: (self.output / name).stat().st_mtime_ns for name in self.names()})

    def test_selected(self) -> None:
        """Filters and a limit select."""
        self.run_on("export", "--output", str(self.output), "--status", "5xx")
        self.assertEqual([f"{RECORDS[1].id}.json"], self.names())
        self.run_on("export", "--output", str(self.output / "one"), "--limit", "1")
        self.assertEqual([f"{RECORDS[1].id}.json"], os.listdir(self.output / "one"))
        ran = self.run_on("export", "--output", str(self.output / "none"), "--status", "404")
        self.assertEqual(f"exported 0 receipts to {self.output / 'none'}\n", ran.stdout.decode())
        self.assertIn("has no record that matches", ran.stderr)

    def test_one(self) -> None:
        """One receipt goes to the file that is named, or into the folder that is there."""
        path = self.folder / "one.json"
        self.run_on("export", "--output", str(path), "--", RECORDS[0].id[:10])
        self.assertEqual(0, run_svc("verify", *self.anchors(), str(path)).status)
        self.output.mkdir()
        for output in (str(self.output), f"{self.output}/", f"{self.folder}/new/"):
            self.run_on("export", RECORDS[0].id, "--output", output)
            ran = self.run_on("export", RECORDS[0].id, "--output", output)
            self.assertIn(" (1 was there already)\n", ran.stdout.decode())
            self.assertEqual([f"{RECORDS[0].id}.json"], os.listdir(output))

    def test_never_overwrites(self) -> None:
        """A file with another content stays, the others are exported, and the status is 1."""
        self.output.mkdir()
        foreign = self.output / f"{RECORDS[1].id}.json"
        foreign.write_text("mine")
        ran = self.run_on("export", "--output", str(self.output), status=1)
        self.assertEqual("mine", foreign.read_text())
        self.assertEqual(f"exported 1 receipt to {self.output}\n", ran.stdout.decode())
        self.assertIn(f"{RECORDS[1].id} is not exported: {foreign} exists already", ran.stderr)
        self.assertIn("1 of 2 receipts could not be exported (not_exported)", ran.stderr)
        ran = self.run_on("export", RECORDS[1].id, "--output", str(foreign), status=1)
        self.assertIn("(file_exists)", ran.stderr)

    def test_what_is_no_evidence(self) -> None:
        """An unsigned record, and receipts without their statement, are not exported."""
        ran = self.run_on("export", RECORDS[2].id, "--output", str(self.folder / "a.json"), status=1)
        self.assertIn("(record_unsigned)", ran.stderr)
        path = self.folder / "gone.db"
        self.fill(path, statement=False)
        ran = self.run_on("export", "--output", str(self.output), status=1, database=path)
        self.assertIn("2 of 2 receipts could not be exported", ran.stderr)
        self.assertEqual([], self.names())

    def test_folder_that_cannot_be_made(self) -> None:
        """A folder in the place of a file is an error of that path."""
        self.write("file", b"")
        ran = self.run_on("export", "--output", str(self.folder / "file"), status=1)
        self.assertIn("(file_not_written)", ran.stderr)


class FakeConnection:
    """Answers requests for artifacts; records their paths."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.peer = SimpleNamespace(own_svid=FIXTURE.client_svid, svid=FIXTURE.svid)
        self.paths: list[str] = []
        self._answers = list(answers)

    async def fetch(self, path: str) -> Any:
        """Answer with the next answer."""
        self.paths.append(path)
        status, body = self._answers.pop(0)
        kind = b"application/json" if status == 200 else b"application/problem+json"
        fields = ((b"Content-Type", kind),)
        head = SimpleNamespace(status=status, phrase=b"x", values=lambda name: [dict(fields)[b"Content-Type"]])
        return SimpleNamespace(head=head, body=body)


def done(work: Any) -> Any:
    """Run a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class NotarySourceTests(SynchronousTestCase):
    """What is asked of a proxy, and how its answers are read."""

    def source(self, *answers: tuple[int, bytes]) -> tuple[NotarySource, FakeConnection]:
        """A source with the answers that will come."""
        connection = FakeConnection(*answers)
        return NotarySource(connection, "api.test:8443"), connection  # type: ignore[arg-type]

    def test_list(self) -> None:
        """A query is sent as parameters, and a page read."""
        summary = receipt_summary(RECORDS[0].id, RECORDS[0].payload)
        body = json.dumps({"v": 1, "receipts": [summary], "next": f"17.{RECORDS[0].id}"}).encode()
        source, connection = self.source((200, body))
        page = done(source.find(ReceiptQuery(path="/a b", limit=3)))
        self.assertEqual(Page([summary], RecordPosition(17, RECORDS[0].id)), page)
        self.assertEqual(["/.well-known/svc-notary/v1/receipts?path=%2Fa%20b&limit=3"], connection.paths)

    def test_record_of_a_batch(self) -> None:
        """A receipt that was signed with others is taken as it is served, and exported."""
        receipt = FIXTURE.batched()
        name = receipt_id(receipt.payload)
        statement = FIXTURE.credentials.statement.envelope.serialize()
        source, _connection = self.source((200, receipt.serialize()), (200, statement))
        found = done(source.record(name))
        self.assertEqual((name, receipt), (found.id, found.receipt))
        self.assertEqual(receipt, EvidenceFile.parse(found.evidence().serialize()).receipt)

    def test_malformed_list(self) -> None:
        """An answer that is no list is refused."""
        for body in (b"", b"[]", b"{}", b'{"receipts":[],"next":1}', b'{"receipts":[1],"next":null}', b'{"next":null}'):
            source, _connection = self.source((200, body))
            error = self.assertRaises(RecordError, done, source.find(ReceiptQuery()))
            self.assertEqual("list_malformed", error.reason)

    def test_hostile_list(self) -> None:
        """A list that has more than was asked for, goes back, or has no end is refused."""
        before = RecordPosition(17, "b")
        for receipts, following in (([{}] * 4, "16.a"), ([{}] * 4, None), ([], "17.b"), ([], "18.a")):
            body = json.dumps({"receipts": receipts, "next": following}).encode()
            source, _connection = self.source((200, body))
            error = self.assertRaises(RecordError, done, source.find(ReceiptQuery(limit=3, before=before)))
            self.assertEqual("list_malformed", error.reason, following)
        answers = [
            (200, json.dumps({"receipts": [], "next": f"{each}.a"}).encode()) for each in range(MAX_PAGES, 0, -1)
        ]
        source, connection = self.source(*answers)
        found = SummaryList(source, ReceiptQuery(), None)

        async def work() -> None:
            async for page in found.pages():
                self.assertEqual([], page)

        self.assertEqual("list_endless", self.assertRaises(RecordError, done, work()).reason)
        self.assertEqual(MAX_PAGES, len(connection.paths))
        source, connection = self.source(*answers[1:], (200, b'{"receipts":[],"next":null}'))
        found = SummaryList(source, ReceiptQuery(), None)
        done(work())

    def test_same_second(self) -> None:
        """A list may continue in the second in which it began, in whatever order that has."""
        for name in "ac":
            source, _connection = self.source((200, json.dumps({"receipts": [], "next": f"17.{name}"}).encode()))
            page = done(source.find(ReceiptQuery(before=RecordPosition(17, "b"))))
            self.assertEqual(RecordPosition(17, name), page.next)

    def test_many_statements(self) -> None:
        """Of the statements that receipts name a bounded number is kept."""
        statement = FIXTURE.credentials.statement.envelope.serialize()
        source, _connection = self.source((200, RECORDS[0].envelope or b""), (200, statement))
        source._statements.update({str(each): None for each in range(64)})
        done(source.record(RECORDS[0].id))
        self.assertEqual((64, False), (len(source._statements), "0" in source._statements))

    def test_refused_list(self) -> None:
        """A refusal has its status, its code and what to do."""
        for code, hint in (("not_found", "an older one serves no lists"), ("notary_unavailable", "its database")):
            status, body = problem(code)
            source, _connection = self.source((status, body))
            error = self.assertRaises(RecordError, done, source.find(ReceiptQuery()))
            self.assertIn(f"answered {status} x: {code}", str(error))
            self.assertIn(hint, error.hint)

    def test_record(self) -> None:
        """A receipt is asked for by its id in any spelling, or by its nonce, and its statement with it."""
        first = RECORDS[0]
        statement = FIXTURE.credentials.statement
        names = ((key, f"by-request/{key}") for key in (first.nonce or "", first.jti))
        for key, path in ((printed_id(first.id), first.id), *names):
            answers = ((200, first.envelope or b""), (200, statement.envelope.serialize()))
            source, connection = self.source(*answers)
            found = done(source.record(key))
            self.assertEqual((first.id, first.payload), (found.id, found.payload))
            self.assertIsNotNone(found.evidence())
            self.assertEqual(
                [f"/.well-known/svc-notary/v1/{each}" for each in (f"receipts/{path}", f"statements/{statement.id}")],
                connection.paths,
            )

    def test_other_record(self) -> None:
        """Another receipt than the one that was asked for is refused; what is absent or pending is said."""
        for answer, reason in (
            ((200, RECORDS[1].envelope or b""), "record_altered"),
            (problem("not_found"), "record_missing"),
            (problem("receipt_pending"), "record_pending"),
            (problem("notary_unavailable"), "notary_answer"),
        ):
            source, _connection = self.source(answer)
            error = self.assertRaises(RecordError, done, source.record(RECORDS[0].id))
            self.assertEqual(reason, error.reason)
        for key in (RECORDS[0].nonce or "", RECORDS[0].jti, NONCE):
            source, _connection = self.source((200, RECORDS[1].envelope or b""))
            self.assertEqual("record_altered", self.assertRaises(RecordError, done, source.record(key)).reason)

    def test_names(self) -> None:
        """The beginning of an id is not looked up."""
        source, _connection = self.source()
        self.assertRaises(UsageRefused, done, source.record("abc"))

    def test_export_stays_in_its_folder(self) -> None:
        """A file has the computed identifier as its name, whatever a proxy lists: it accepts ids with / too."""
        parts = Path(self.mktemp()).absolute() / "folder"
        os.makedirs(parts)
        listed = f"{parts.parent}/outside"
        statement = FIXTURE.credentials.statement
        source, _connection = self.source((200, RECORDS[0].envelope or b""), (200, statement.envelope.serialize()))

        async def record(key: str) -> Any:
            self.assertEqual(listed, key)
            return await NotarySource.record(source, RECORDS[0].id)

        source.record = record
        result = ExportResult()
        done(_export(source, listed, str(parts), result, SimpleNamespace()))  # type: ignore[arg-type]
        self.assertEqual(([f"{RECORDS[0].id}.json"], 1), (os.listdir(parts), result.written))
        self.assertEqual(["folder"], os.listdir(parts.parent))

    def test_pages_up_to_a_limit(self) -> None:
        """Pages are read until the limit, empty ones too."""
        pages = [Page([{}] * count, RecordPosition(9 - count, "a")) for count in (0, 2, 1)]
        asked: list[ReceiptQuery] = []

        async def find(query: ReceiptQuery) -> Page:
            asked.append(query)
            return pages[len(asked) - 1]

        async def work() -> tuple[int, bool]:
            found = SummaryList(SimpleNamespace(find=find), ReceiptQuery(), 3)
            return sum([len(page) async for page in found.pages()]), found.more

        self.assertEqual((3, True), done(work()))
        self.assertEqual([(3, None), (3, (9, "a")), (1, (7, "a"))], [(each.limit, each.before) for each in asked])
