"""The chain of audit records: whole logs pass, and nothing can be done to a log that it does not show."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.audit import AuditChain, AuditChainBroken, main, verify_audit_chain
from svc.telemetry.events.base import Event
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.log_writer import LogWriter
from svc.telemetry.logs import RecordObserver, emit, log_observer, missing_event
from svc.telemetry.records import Origin, RecordBuilder


def log_of(*events: Event) -> list[bytes]:
    """The lines of one process."""
    stream = io.BytesIO()
    log = Logger(observer=log_observer(Origin("proxy", "1"), stream=stream, random=bytes))
    for event in events:
        emit(log, event)
    return stream.getvalue().splitlines(keepends=True)


PAGE = log_of(
    ProxyEvent.POLICY_LOADED,
    ProxyEvent.LISTENER_OPENED,
    DaemonEvent.CONFIG_LOADED,
    DaemonEvent.CONFIG_REJECTED,
    ProxyEvent.AUTH_DENIED,
    DaemonEvent.ADMIN_DRAIN,
    ProxyEvent.DRAIN_STARTED,
)
#: The lines of the audit records in it.
AUDITS = (0, 2, 3, 5)


class ChainTests(SynchronousTestCase):
    """One log."""

    def test_whole(self) -> None:
        """An untouched log passes; other records and foreign lines between change nothing."""
        found = verify_audit_chain(PAGE)
        self.assertEqual((4, 1), (found.records, found.starts))
        self.assertEqual(found, verify_audit_chain([b"a note\n", PAGE[0].rstrip(), b"[1]\n", *PAGE[1:]]))
        self.assertEqual(AuditChain(0, 0, None), verify_audit_chain([]))

    def test_any_attributes(self) -> None:
        """Fractions in a record, and its own words in the text of another one, are nothing special."""
        stream = io.BytesIO()
        log = Logger(observer=log_observer(Origin("proxy", "1"), stream=stream, random=bytes))
        emit(log, DaemonEvent.CONFIG_LOADED, attributes={"seconds": 0.5})
        emit(log, ProxyEvent.AUTH_DENIED, detail='"audit":{"seq":7}')
        self.assertEqual(1, verify_audit_chain(stream.getvalue().splitlines()).records)

    def test_restarts(self) -> None:
        """Each start of the process begins a chain."""
        found = verify_audit_chain([*PAGE, *log_of(ProxyEvent.POLICY_LOADED), *PAGE])
        self.assertEqual((9, 3), (found.records, found.starts))

    def test_last(self) -> None:
        """The digest that is given is the one that the next record names."""
        longer = log_of(ProxyEvent.POLICY_LOADED, DaemonEvent.CONFIG_LOADED)
        found = verify_audit_chain(longer[:1])
        self.assertEqual(json.loads(longer[1])["audit"]["prev"], found.last)

    @given(st.sampled_from(AUDITS[:-1]), st.data())
    def test_changed(self, line: int, data: st.DataObject) -> None:
        """Whatever octet of a record changes, the next record shows it."""
        position = data.draw(st.integers(0, len(PAGE[line]) - 2))
        octet = data.draw(st.integers(32, 126).filter(lambda each: each != PAGE[line][position]))
        changed = [*PAGE]
        changed[line] = PAGE[line][:position] + bytes([octet]) + PAGE[line][position + 1 :]
        self.assertRaises(AuditChainBroken, verify_audit_chain, changed)

    @given(st.sets(st.sampled_from(AUDITS[:-1]), min_size=1, max_size=2))
    def test_removed(self, lines: set[int]) -> None:
        """Records that are missing before the last one are noticed."""
        left = [line for number, line in enumerate(PAGE) if number not in lines]
        self.assertRaises(AuditChainBroken, verify_audit_chain, left)

    @given(st.permutations(AUDITS))
    def test_moved(self, order: list[int]) -> None:
        """Records pass in the order in which they were written only."""
        lines = [PAGE[number] for number in order]
        if tuple(order) == AUDITS:
            verify_audit_chain(lines)
        else:
            self.assertRaises(AuditChainBroken, verify_audit_chain, lines)

    def test_where(self) -> None:
        """The error names the line and what is wrong with it."""
        error = self.assertRaises(AuditChainBroken, verify_audit_chain, [*PAGE[:2], *PAGE[3:]])
        self.assertEqual("the audit chain is broken in line 3: record 3 follows record 1", str(error))
        unchained = PAGE[2].replace(b'"audit":{', b'"other":{')
        error = self.assertRaises(AuditChainBroken, verify_audit_chain, [unchained])
        self.assertIn("it has no sequence number", str(error))
        odd = PAGE[0].replace(b'"seq":1', b'"seq":"1"')
        self.assertRaises(AuditChainBroken, verify_audit_chain, [odd])

    def test_unwritten(self) -> None:
        """A gap that the process reports is an error too, which contains the reported count of this gap only."""
        dropped = log_of(DaemonEvent.LOGS_DROPPED)[0].replace(b'"event"', b'"attributes":{"count":2},"event"')
        words = "record 4 follows record 1; in between the process says that it could not write 4 lines"
        for page in ([PAGE[0], dropped, dropped, PAGE[5]], [dropped, PAGE[0], dropped, b"{}\n", dropped, PAGE[5]]):
            error = self.assertRaises(AuditChainBroken, verify_audit_chain, page)
            self.assertIn(words, str(error))
        error = self.assertRaises(AuditChainBroken, verify_audit_chain, [dropped, PAGE[0], PAGE[5]])
        self.assertTrue(str(error).endswith("record 4 follows record 1"), error)

    def test_odd_lines(self) -> None:
        """A line that only resembles such a record is not counted."""
        name = b'"svc.runtime.logs_dropped"'
        for odd in (
            name,
            b"{" + name,
            b'{"event":{"name":' + name + b"}}",
            b'{"event":{"name":' + name + b'},"attributes":{"count":"2"}}',
            b'{"event":{"name":' + name + b'},"attributes":{"count":-2}}',
            b'{"event":{"name":"other"},"attributes":{"count":2,"of":' + name + b"}}",
        ):
            error = self.assertRaises(AuditChainBroken, verify_audit_chain, [PAGE[0], odd, PAGE[5]])
            self.assertTrue(str(error).endswith("record 4 follows record 1"), odd)

    def test_outlet_that_is_blocked(self) -> None:
        """Lines that a log writer drops break the chain visibly, and its own record explains the gap."""
        builder = RecordBuilder(Origin("proxy", "1"), random=bytes)
        full, path = os.open("/dev/full", os.O_WRONLY), self.mktemp()
        self.addCleanup(os.close, full)
        log_writer = LogWriter(full, lambda count: builder.line(missing_event(count)), limit=700)
        log = Logger(observer=RecordObserver(builder.line, builder, log_writer.write))
        for _number in range(9):
            emit(log, DaemonEvent.CONFIG_LOADED)
        missing = log_writer.dropped
        self.assertGreater(missing, 0)
        with open(path, "wb") as file:
            log_writer._descriptor = file.fileno()
            self.assertTrue(log_writer.flush())
            emit(log, DaemonEvent.CONFIG_LOADED)
            self.assertTrue(log_writer.flush())
        with open(path, "rb") as file:
            error = self.assertRaises(AuditChainBroken, verify_audit_chain, file)
        self.assertIn(f"record 10 follows record {9 - missing}; in between the process says", str(error))
        self.assertTrue(str(error).endswith(f"could not write {missing} lines"), error)


class CommandTests(SynchronousTestCase):
    """``python -m svc.telemetry.audit``."""

    def test_files(self) -> None:
        """Each file is one line; status 1 where one is broken or cannot be read."""
        whole, broken = Path(self.mktemp()), Path(self.mktemp())
        whole.write_bytes(b"".join(PAGE))
        broken.write_bytes(b"".join(PAGE[1:]))
        out = io.StringIO()
        self.assertEqual(0, main([str(whole)], out))
        self.assertIn(f"{whole}: 4 audit records of 1 starts, last ", out.getvalue())
        self.assertEqual(1, main([str(broken), "/no/such/file", str(whole)], out))
        self.assertIn(f"{broken}: the audit chain is broken in line 2: record 2 follows record 0", out.getvalue())
        self.assertIn("/no/such/file: cannot be read: No such file or directory", out.getvalue())

    def test_no_log(self) -> None:
        """A file without an audit record proves nothing, which is no success."""
        other = Path(self.mktemp())
        for content in (b"", b"# a text\n", b'{"event":{"category":"operational"}}\n'):
            other.write_bytes(content)
            out = io.StringIO()
            self.assertEqual(1, main([str(other)], out))
            self.assertIn(f"{other}: no audit record;", out.getvalue())
