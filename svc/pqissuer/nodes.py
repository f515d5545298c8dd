"""
Which PQ bundle each node serves, as its agent reports when it fetches the next one.

A new root may sign early when every node has it. Reports are kept in memory: after a restart they are collected anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from svc.errors import SvcError

#: Verifiers read the file of their node each second; a root counts as served when they had time for it.
SETTLE_SECONDS: Final = 5.0
#: The largest Kubernetes cluster that is supported has as many.
MAX_NODES: Final = 5000
#: Names of Kubernetes nodes are DNS subdomains; host names may have further letters.
_NODE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z", re.ASCII)
_SEQUENCE: Final = re.compile(r"[0-9]{1,16}\Z", re.ASCII)


class ReportMalformed(SvcError):
    """the report of a node is malformed: {defect}"""

    reason = "report_malformed"
    http_status = 400
    hint = "a name of a node has letters, digits, '.', '_' and '-', at most 253; is svc-agent of another version?"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node serves: the sequence of its PQ bundle for the own trust domain, 0 while it has none."""

    node: str
    sequence: int

    @classmethod
    def parse(cls, query: Mapping[bytes, Sequence[bytes]]) -> NodeReport | None:
        """
        Read the parameters ``node`` and ``sequence`` of a request.

        Returns:
            None where neither is there: the caller reports nothing.

        Raises:
            ReportMalformed: one is missing, given twice, or not as expected.
        """
        given = {name: query.get(name, ()) for name in (b"node", b"sequence")}
        if not any(given.values()):
            return None
        texts = []
        for name, expected in ((b"node", _NODE), (b"sequence", _SEQUENCE)):
            text = given[name][0].decode("latin-1") if len(given[name]) == 1 else ""
            if not expected.match(text):
                raise ReportMalformed(defect=f"{name.decode('ascii')} is missing, given twice or malformed")
            texts.append(text)
        return cls(texts[0], int(texts[1]))


@dataclass(frozen=True, slots=True)
class ServedBundle:
    """
    What is known of one node.

    Attributes:
        sequence: of the bundle that it serves.
        since: the instant of the first report of it, in seconds of a monotonic clock.
        reported: the instant of the last report.
    """

    sequence: int
    since: float
    reported: float


class ServingNodes:
    """
    The nodes whose agents have reported within ``life`` seconds.

    Args:
        began: the instant at which collecting begins, in seconds of a monotonic clock, as all instants here.
        life: seconds for which a report counts.
        limit: nodes that are known at most.
    """

    def __init__(self, began: float, life: float, *, limit: int = MAX_NODES) -> None:
        self._life = life
        self._limit = limit
        # From when on each report was stored.
        self._complete_since = began
        self._nodes: dict[str, ServedBundle] = {}

    def report(self, report: NodeReport, now: float) -> None:
        """Store a report; that of a new node is omitted while as many as possible are known."""
        former = self._nodes.pop(report.node, None)
        if former is None and len(self._nodes) >= self._limit:
            self._forget(now)
        if len(self._nodes) >= self._limit:
            self._complete_since = now
            return
        same = former is not None and former.sequence == report.sequence
        since = former.since if former is not None and same else now
        self._nodes[report.node] = ServedBundle(report.sequence, since, now)

    def known(self, now: float) -> Mapping[str, ServedBundle]:
        """The nodes that are not forgotten; the one that reported last comes last."""
        self._forget(now)
        return self._nodes

    def behind(self, sequence: int, now: float) -> tuple[str, ...]:
        """The names of the nodes that serve an earlier bundle than this one, in order."""
        return tuple(sorted(name for name, served in self.known(now).items() if served.sequence < sequence))

    def all_serve(self, sequence: int, now: float) -> bool:
        """
        Whether each node serves this bundle or a later one, and verifiers had time to read it.

        No while there is none, or one may have reported before collecting began.
        """
        known = self.known(now).values()
        if not known or now - self._complete_since < self._life:
            return False
        return all(each.sequence >= sequence and now - each.since >= SETTLE_SECONDS for each in known)

    def _forget(self, now: float) -> None:
        # The one that reported first comes first.
        while self._nodes:
            name, served = next(iter(self._nodes.items()))
            if now - served.reported < self._life:
                return
            del self._nodes[name]
