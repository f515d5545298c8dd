"""
Which rules can never decide, because an earlier one matches all that they match.

Compares what rules say, not requests: a rule that is named here is shadowed; one that only several others shadow
together is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from svc.identity import ExactID, Matcher, MemberOf, PathPrefix
from svc.policy.mqtt import ClientIdPattern
from svc.policy.paths import HostPattern, PathPattern
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    MqttTarget,
    Patterns,
    Rule,
    RuleCondition,
    RuleTarget,
    Source,
    TopicFilters,
    Values,
)
from svc.wire.mqtt import topics

#: A topic filter is a str.
_Pattern = PathPattern | HostPattern | ClientIdPattern | str


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A rule that never decides, and the one that decides before it: each by policy and rule."""

    policy: str
    rule: str
    by_policy: str
    by_rule: str


def shadowed_rules(policies: Sequence[AuthorizationPolicy]) -> Iterator[Shadowed]:
    """Rules of enforced policies that never decide; each is compared with those that are evaluated before it."""
    denied: list[tuple[AuthorizationPolicy, Rule]] = []
    for policy in policies:
        if policy.enforced and policy.action is Action.DENY:
            for rule in policy.rules:
                yield from _first(policy, rule, denied)
                denied.append((policy, rule))
    allowed: dict[int, list[tuple[AuthorizationPolicy, Rule]]] = {}
    for policy in policies:
        if policy.enforced and policy.action is Action.ALLOW:
            before = allowed.setdefault(policy.rank, [])
            for rule in policy.rules:
                yield from _first(policy, rule, [*denied, *before])
                before.append((policy, rule))


def shadowed_by(policy: AuthorizationPolicy, earlier: AuthorizationPolicy) -> Iterator[Shadowed]:
    """Rules of an enforced policy that never decide because of another one, where that one comes first."""
    denies = earlier.action is Action.DENY and policy.action is not Action.AUDIT
    allows = earlier.action is policy.action is Action.ALLOW and earlier.rank == policy.rank
    if policy.enforced and earlier.enforced and (denies or allows):
        before = [(earlier, rule) for rule in earlier.rules]
        for rule in policy.rules:
            yield from _first(policy, rule, before)


def _first(
    policy: AuthorizationPolicy, rule: Rule, before: Sequence[tuple[AuthorizationPolicy, Rule]]
) -> Iterator[Shadowed]:
    for earlier, other in before:
        if covers(other, rule):
            yield Shadowed(policy.qualified_name, rule.name, earlier.qualified_name, other.name)
            return


def covers(wide: Rule, narrow: Rule) -> bool:
    """Whether whatever matches one rule matches the other, as far as their entries show it one by one."""
    return (
        _entries_cover(wide.sources, narrow.sources, Source(), _source_covers)
        and _entries_cover(wide.targets, narrow.targets, RuleTarget(), _target_covers)
        and _entries_cover(wide.conditions, narrow.conditions, RuleCondition(), _condition_covers)
    )


def _entries_cover(wide, narrow, everything, one_covers) -> bool:  # type: ignore[no-untyped-def]
    return all(any(one_covers(each, other) for each in wide or (everything,)) for other in narrow or (everything,))


def _source_covers(wide: Source, narrow: Source) -> bool:
    return (
        (
            not wide.spiffe_ids
            or (
                bool(narrow.spiffe_ids)
                and all(any(_matcher_covers(each, other) for each in wide.spiffe_ids) for other in narrow.spiffe_ids)
            )
        )
        and all(any(_matcher_covers(other, each) for other in narrow.not_spiffe_ids) for each in wide.not_spiffe_ids)
        and _values_cover(wide.trust_domains, narrow.trust_domains)
        and _values_cover(wide.namespaces, narrow.namespaces)
        and _values_cover(wide.service_accounts, narrow.service_accounts)
        and _values_cover(wide.levels, narrow.levels)
        and _values_cover(wide.compartments, narrow.compartments)
        and narrow.same_compartment >= wide.same_compartment
        and narrow.dominates >= wide.dominates
    )


def _target_covers(wide: RuleTarget, narrow: RuleTarget) -> bool:
    return (
        _values_cover(wide.listeners, narrow.listeners)
        and _values_cover(wide.ports, narrow.ports)
        and _patterns_cover(wide.snis, narrow.snis)
        and _values_cover(wide.alpns, narrow.alpns)
        and _patterns_cover(wide.hosts, narrow.hosts)
        and _values_cover(wide.methods, narrow.methods)
        and _patterns_cover(wide.paths, narrow.paths)
        and (wide.mqtt is None or _mqtt_covers(wide.mqtt, narrow.mqtt or MqttTarget()))
    )


def _mqtt_covers(wide: MqttTarget, narrow: MqttTarget) -> bool:
    return (
        _values_cover(wide.actions, narrow.actions)
        and _patterns_cover(wide.topics, narrow.topics)
        and _patterns_cover(wide.client_ids, narrow.client_ids)
    )


def _condition_covers(wide: RuleCondition, narrow: RuleCondition) -> bool:
    return wide.post_quantum in (None, narrow.post_quantum) and _values_cover(wide.asked, narrow.asked)


def _values_cover(wide: Values, narrow: Values) -> bool:
    if wide.wanted and not (narrow.wanted and narrow.wanted - narrow.excluded <= wide.wanted):
        return False
    return all(
        value in narrow.excluded or (bool(narrow.wanted) and value not in narrow.wanted) for value in wide.excluded
    )


def _patterns_cover(wide: Patterns | TopicFilters, narrow: Patterns | TopicFilters) -> bool:
    if wide.wanted and not (
        narrow.wanted and all(any(_pattern_covers(each, other) for each in wide.wanted) for other in narrow.wanted)
    ):
        return False
    return all(any(_pattern_covers(other, each) for other in narrow.excluded) for each in wide.excluded)


def _matcher_covers(wide: Matcher, narrow: Matcher) -> bool:
    if isinstance(narrow, ExactID):
        return wide.matches(narrow.spiffe_id)
    if isinstance(narrow, PathPrefix):
        if isinstance(wide, PathPrefix):
            return wide == narrow or wide.matches(narrow.prefix)
        return isinstance(wide, MemberOf) and wide.trust_domain == narrow.prefix.trust_domain
    return wide == narrow


def _pattern_covers(wide: _Pattern, narrow: _Pattern) -> bool:
    if isinstance(wide, str) or isinstance(narrow, str):
        return isinstance(wide, str) and isinstance(narrow, str) and topics.covers(wide, narrow)
    if isinstance(wide, ClientIdPattern) or isinstance(narrow, ClientIdPattern):
        # The * of the narrow one is no character of a beginning or an end of the wide one.
        return wide.matches(narrow.text)
    if isinstance(wide, HostPattern) or isinstance(narrow, HostPattern):
        return wide == narrow or (
            isinstance(wide, HostPattern) and wide.text.startswith("*.") and narrow.text.endswith(wide.text[1:])
        )
    if narrow.template:
        if wide.template:
            return len(wide.template) == len(narrow.template) and all(
                (wanted is None and other != "") or wanted == other
                for wanted, other in zip(wide.template, narrow.template, strict=True)
            )
        literal = narrow.text.partition("{")[0]
        return bool(wide.below) and literal.startswith(wide.below)
    if narrow.below:
        return bool(wide.below) and narrow.below.startswith(wide.below)
    return wide.matches(narrow.text)
