"""
What a decision of the policies costs, by the number of their rules.

Owns the rules: of three kinds, all for the client that asks, so that nothing is left out before the request is known.
"""

from __future__ import annotations

import time
from typing import Final

from benchmarks.rows import Row, less_is_better
from svc.identity import SpiffeID
from svc.policy.attributes import Attributes
from svc.policy.engine import PolicySet
from svc.policy.paths import HostPattern, PathPattern, plain_host, plain_path
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    ConnectionFacts,
    Patterns,
    RequestFacts,
    Rule,
    RuleTarget,
    Source,
    Values,
)

FEW: Final = 10
MANY: Final = 1000
_CLIENT: Final = SpiffeID.parse("spiffe://bench.example/ns/bench/sa/client")
_SOURCES: Final = (Source(namespaces=Values(frozenset({"bench"}))),)
_GET: Final = Values(frozenset({"GET"}))


def rows(rounds: int, decisions: int) -> list[Row]:
    """
    Measure decisions.

    Args:
        rounds: how often each figure is taken.
        decisions: of one figure.

    Returns:
        The row.
    """
    few, many = _policies(FEW), _policies(MANY)
    figures: tuple[list[float], list[float]] = ([], [])
    for _round in range(rounds):
        for found, policies, count in ((figures[0], few, FEW), (figures[1], many, MANY)):
            found.append(_cost(policies, count, decisions))
    peer = f"ours, {FEW} rules"
    return [less_is_better(f"policy decision, {MANY} rules", peer, figures[1], figures[0], "us CPU/decision", 0.5)]


def _policies(count: int) -> PolicySet:
    return PolicySet([AuthorizationPolicy("bench", Action.ALLOW, tuple(_rule(number) for number in range(count)))])


def _rule(number: int) -> Rule:
    if number % 5 == 4:
        target = RuleTarget(hosts=Patterns((HostPattern.parse(f"h{number}.bench.example"),)), methods=_GET)
    else:
        text = (f"/a{number}/*", f"/b{number}/orders", f"/c{number}/{{id}}", f"/d/e{number}/*")[number % 5]
        target = RuleTarget(paths=Patterns((PathPattern.parse(text),)), methods=_GET)
    return Rule(f"rule-{number}", _SOURCES, (target,))


def _cost(policies: PolicySet, count: int, decisions: int) -> float:
    """CPU microseconds of a decision: requests that the last rules of each kind allow, and one that none does."""
    connection = policies.connection(ConnectionFacts("web", 8443, _CLIENT, Attributes("bench", "client")))
    base = count - 5
    asked = (
        (f"/a{base}/1/2", "x"),
        (f"/b{base + 1}/orders", "x"),
        (f"/c{base + 2}/7", "x"),
        (f"/d/e{base + 3}/9", "x"),
        ("/", f"h{base + 4}.bench.example:8443"),
        ("/none/of/these", "x"),
    )
    requests = [(path.encode("ascii"), host) for path, host in asked]
    began = time.process_time()
    for _number in range(decisions // len(requests)):
        for path, host in requests:
            connection.decide(RequestFacts("GET", plain_path(path), plain_host(host), "none"))
    return (time.process_time() - began) / (decisions // len(requests) * len(requests)) * 1e6
