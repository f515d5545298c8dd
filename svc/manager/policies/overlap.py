"""How two policies meet: rules that never decide, and ports that differ. Each finding is a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from svc.manager.policies.resource import PolicyResource, SvcClusterPolicySpec
from svc.policy.rules import Action
from svc.policy.shadowing import Shadowed, shadowed_by, shadowed_rules
from svc.policyfiles.selector import PodSelector


def own_findings(policy: PolicyResource) -> Iterator[str]:
    """What is strange in one policy."""
    rules = policy.policy
    if rules is None:
        return
    if rules.action is Action.ALLOW and not rules.rules:
        yield "authorization has no rules: nobody is allowed by it"
    elif not rules.rules:
        yield "authorization has no rules: it matches nothing"
    yield from (_sentence(each) for each in shadowed_rules([rules]))


def conflicts(policy: PolicyResource, others: Iterable[PolicyResource]) -> list[str]:
    """What of a policy other policies take the effect from, or contradict."""
    return [sentence for other in others if other.key != policy.key for sentence in conflict(policy, other)]


def conflict(policy: PolicyResource, other: PolicyResource) -> tuple[str, ...]:
    """Return the same for one other policy."""
    found = []
    if policy.policy is not None and other.policy is not None and _decides_before(other, policy):
        found += [_sentence(each) for each in shadowed_by(policy.policy, other.policy)]
    mine, theirs = policy.spec.proxy, other.spec.proxy
    if (
        mine is not None
        and theirs is not None
        and mine.inbound
        and theirs.inbound
        and set(mine.inbound) != set(theirs.inbound)
        and policy.key[0] == other.key[0]
        and _may_meet(policy, other)
    ):
        first = min(policy.key, other.key)
        which = "of this policy" if first == policy.key else f"of {other}"
        found.append(f"proxy.inbound differs from that of {other}: pods that both are about get that {which}")
    return tuple(found)


def _sentence(each: Shadowed) -> str:
    by = f"{each.by_rule} of {each.by_policy}"
    return f"the rule {each.rule} never decides: {by} matches all that it matches"


def _decides_before(first: PolicyResource, second: PolicyResource) -> bool:
    """Whether a policy is about all pods of the other one, and comes before it where both have one action."""
    if first.policy is None or second.policy is None:
        return False
    in_order = first.policy.action is not second.policy.action or first.key < second.key
    return in_order and covers_namespaces(first, second) and _covers(first.spec.podSelector, second.spec.podSelector)


def covers_namespaces(wide: PolicyResource, narrow: PolicyResource) -> bool:
    """Whether a policy is about all namespaces of the other one, as far as their selectors show it."""
    if not isinstance(wide.spec, SvcClusterPolicySpec):
        return wide.key[:2] == narrow.key[:2]
    narrower = narrow.spec.namespaceSelector if isinstance(narrow.spec, SvcClusterPolicySpec) else PodSelector()
    return _covers(wide.spec.namespaceSelector, narrower)


def _covers(wide: PodSelector | None, narrow: PodSelector | None) -> bool:
    wide, narrow = wide or PodSelector(), narrow or PodSelector()
    return wide.matchLabels.items() <= narrow.matchLabels.items() and set(wide.matchExpressions) <= set(
        narrow.matchExpressions
    )


def _may_meet(one: PolicyResource, other: PolicyResource) -> bool:
    """Whether there can be a pod that both are about; different values of one label exclude it."""
    if isinstance(one.spec, SvcClusterPolicySpec) and isinstance(other.spec, SvcClusterPolicySpec):
        if not _compatible(one.spec.namespaceSelector, other.spec.namespaceSelector):
            return False
    elif one.key[1] != other.key[1]:
        return False
    return _compatible(one.spec.podSelector, other.spec.podSelector)


def _compatible(one: PodSelector | None, other: PodSelector | None) -> bool:
    if one is None or other is None:
        return True
    shared = one.matchLabels.keys() & other.matchLabels.keys()
    return all(one.matchLabels[name] == other.matchLabels[name] for name in shared)
