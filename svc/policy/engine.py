"""
Decides by a set of policies.

Order: the first matching rule of a Deny policy refuses. Then a rule of the Allow policies must match, one of each rank
that there is: of the cluster's, and of the namespace's. What nothing allows is refused.

A set is narrowed once for each kind of connection and indexed by path and topic, so a request is compared with few
rules, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, get_args

from svc.errors import SvcError
from svc.identity import ExactID, PathPrefix, SpiffeID
from svc.policy.mqtt import ClientIdPattern
from svc.policy.paths import HostPattern, PathPattern
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    ConnectionFacts,
    MqttAction,
    MqttTarget,
    RequestFacts,
    Rule,
    RuleCondition,
    RuleTarget,
    Source,
    Values,
)

#: Kinds of connections whose narrowed rules are kept.
CACHE_SIZE: Final = 1024
#: The name of policy and rule of a refusal that no rule caused.
DEFAULT_DENY: Final = "default-deny"
_ANY: Final = "any"

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Denied(SvcError):
    """{identity} is not permitted here: {rule} ({policy})"""

    reason = "policy_deny"
    http_status = 403
    hint = "allow this identity in the policy of the proxy that answers"
    identity: SpiffeID
    policy: str
    rule: str


@dataclass(frozen=True, slots=True)
class MatchedRule:
    """A rule that matched a request, with the notarization levels of a rule that allows."""

    policy: str
    rule: str
    minimum: str | None = None
    maximum: str | None = None


_NO_RULE: Final = MatchedRule(DEFAULT_DENY, DEFAULT_DENY)


@dataclass(frozen=True, slots=True)
class Permit:
    """
    The evidence that a request was authorized.

    Attributes:
        matched: the rules that permit it, one of each rank, the lowest first.
        bounded: whether any of them has a notarization level.
    """

    identity: SpiffeID
    matched: tuple[MatchedRule, ...]
    bounded: bool = False

    @property
    def policy(self) -> str:
        """The policy that permits it, the narrowest."""
        return self.matched[-1].policy

    @property
    def rule(self) -> str:
        """The rule that permits it."""
        return self.matched[-1].rule


@dataclass(frozen=True, slots=True)
class Decision:
    """
    What a set says of one request.

    Attributes:
        allowed: whether it is permitted.
        matched: the rules that permit it, or the one that refuses it; ``default-deny`` where none did.
    """

    allowed: bool
    matched: tuple[MatchedRule, ...]


class _Index(Generic[T]):
    """Entries by keys; candidates are those with a key that is probed, in the order in which they were given."""

    def __init__(self, entries: Iterable[T], keys: Callable[[T], Iterable[Hashable]]) -> None:
        self._by_key: dict[Hashable, list[tuple[int, T]]] = {}
        for position, entry in enumerate(entries):
            for key in dict.fromkeys(keys(entry)):
                self._by_key.setdefault(key, []).append((position, entry))

    def candidates(self, probes: Iterable[Hashable]) -> list[T]:
        by_key = self._by_key
        found = [by_key[key] for key in probes if key in by_key]
        if len(found) == 1:
            return [entry for _position, entry in found[0]]
        unique = {position: entry for entries in found for position, entry in entries}
        return [unique[position] for position in sorted(unique)]


class _PolicyRule:
    """One rule of a policy."""

    def __init__(self, policy: AuthorizationPolicy, rule: Rule) -> None:
        self.policy = policy
        self._rule = rule
        #: Whether a fact that is not known satisfies a list of excluded values.
        self._unknown = policy.action is not Action.ALLOW
        self._matched = MatchedRule(policy.qualified_name, rule.name, rule.minimum, rule.maximum)
        by_connection = any(each.depends_on_connection for each in rule.targets) or any(
            each.depends_on_connection for each in rule.conditions
        )
        #: What is left of it for every connection, where only its sources depend on the connection.
        self._left = None if by_connection else self._request_rule(rule.targets, rule.conditions)
        #: The same where more depends on it, by what fits the connection.
        self._left_by_fit: dict[tuple[object, ...], _RequestRule] = {}

    def index_keys(self) -> Iterator[Hashable]:
        """The keys of the most selective field of each source."""
        if not self._rule.sources:
            yield _ANY
        for source in self._rule.sources:
            yield from _source_keys(source)

    def narrowed(self, facts: ConnectionFacts) -> _RequestRule | None:
        """What is left of it for a connection; None where it cannot match."""
        rule, unknown = self._rule, self._unknown
        if rule.sources and not any(source.matches(facts, unknown=unknown) for source in rule.sources):
            return None
        if self._left is not None:
            return self._left
        targets = tuple(each for each in rule.targets if each.matches_connection(facts, unknown=unknown))
        conditions = tuple(each for each in rule.conditions if each.matches_connection(facts))
        if (rule.targets and not targets) or (rule.conditions and not conditions):
            return None
        fit = (targets, conditions)
        if fit not in self._left_by_fit:
            self._left_by_fit[fit] = self._request_rule(targets, conditions)
        return self._left_by_fit[fit]

    def _request_rule(self, targets: tuple[RuleTarget, ...], conditions: tuple[RuleCondition, ...]) -> _RequestRule:
        asked = tuple(each.asked for each in conditions)
        return _RequestRule(
            self._matched,
            targets if all(each.depends_on_request for each in targets) else (),
            asked if all(asked) else (),
            self._unknown,
        )


def _source_keys(source: Source) -> Iterator[Hashable]:
    if source.spiffe_ids:
        for matcher in source.spiffe_ids:
            if isinstance(matcher, ExactID):
                yield matcher.spiffe_id
            elif isinstance(matcher, PathPrefix):
                yield ("below", str(matcher.prefix))
            else:
                yield _ANY
    elif source.namespaces.wanted:
        yield from (("namespace", name) for name in source.namespaces.wanted)
    elif source.trust_domains.wanted:
        yield from source.trust_domains.wanted
    else:
        yield _ANY


def _source_probes(facts: ConnectionFacts) -> Iterator[Hashable]:
    identity = facts.identity
    yield from (_ANY, identity, identity.trust_domain, ("namespace", facts.attributes.namespace))
    path = identity.path
    for end in range(1, len(path)):
        if path[end] == "/":
            yield ("below", f"{identity.trust_domain.id}{path[:end]}")


@dataclass(frozen=True, slots=True, eq=False)
class _RequestRule:
    """What is left of a rule for a connection: what only a request shows. Without any it matches every request."""

    matched: MatchedRule
    targets: tuple[RuleTarget, ...]
    asked: tuple[Values, ...]
    unknown: bool

    @property
    def depends_on_request(self) -> bool:
        return bool(self.targets or self.asked)

    @property
    def needs_packet(self) -> bool:
        """Whether it matches MQTT packets alone."""
        return bool(self.targets) and all(each.mqtt is not None and each.mqtt.needs_packet for each in self.targets)

    def matches(self, request: RequestFacts) -> bool:
        unknown = self.unknown
        if self.asked and not any(asked.admits(request.asked, unknown=unknown) for asked in self.asked):
            return False
        for target in self.targets:
            if target.matches_request(request, unknown=unknown):
                return True
        return not self.targets

    def index_keys(self) -> Iterator[Hashable]:
        if not self.targets:
            yield _ANY
        for target in self.targets:
            if target.mqtt is not None and target.mqtt.needs_packet:
                yield from _packet_keys(target.mqtt)
            elif target.paths.wanted:
                yield from map(_path_key, target.paths.wanted)
            elif target.hosts.wanted:
                yield from (("host", str(pattern).removeprefix("*")) for pattern in target.hosts.wanted)
            elif target.methods.wanted:
                yield from (("method", method) for method in target.methods.wanted)
            else:
                yield _ANY


def _path_key(pattern: PathPattern | HostPattern | ClientIdPattern) -> Hashable:
    if not isinstance(pattern, PathPattern):
        return _ANY
    if pattern.template:
        return ("template", len(pattern.template), pattern.template[0])
    return ("below", pattern.below) if pattern.below else pattern.text


def _packet_keys(target: MqttTarget) -> Iterator[Hashable]:
    for action in get_args(MqttAction):
        if not target.actions.admits(action, unknown=False):
            continue
        if action == "Publish" and target.topics.wanted:
            yield from (("topic", _literal_levels(each)) for each in target.topics.wanted)
        else:
            yield ("action", action)


def _literal_levels(topic_filter: str) -> str:
    """The levels before the first wildcard, each with a slash behind it."""
    return f"{topic_filter}/".partition("+")[0].partition("#")[0]


class _Stage:
    """The rules of one kind that are left for a connection."""

    def __init__(self, rules: Sequence[_RequestRule]) -> None:
        #: The rule that matches every request, where that is the first.
        self._constant = rules[0].matched if rules and not rules[0].depends_on_request else None
        self.depends_on_request = bool(rules) and self._constant is None
        of_http = next((rule for rule in rules if not rule.needs_packet), None)
        self.depends_on_http = of_http is not None and of_http.depends_on_request
        self._index = _Index(rules, _RequestRule.index_keys)
        keys = [key for rule in rules for key in rule.index_keys() if isinstance(key, tuple)]
        self._depth = max((key[1].count("/") for key in keys if key[0] == "below"), default=0)
        self._topic_depth = max((key[1].count("/") for key in keys if key[0] == "topic"), default=0)
        #: What else is probed, since a rule has such a key.
        self._kinds = frozenset(key[0] for key in keys)

    def first(self, request: RequestFacts) -> MatchedRule | None:
        """The first rule that matches a request."""
        if not self.depends_on_request:
            return self._constant
        for rule in self._candidates(request):
            if rule.matches(request):
                return rule.matched
        return None

    def every(self, request: RequestFacts) -> list[MatchedRule]:
        """All rules that match a request."""
        return [rule.matched for rule in self._candidates(request) if rule.matches(request)]

    def _candidates(self, request: RequestFacts) -> list[_RequestRule]:
        return self._index.candidates(self._probes(request))

    def _probes(self, request: RequestFacts) -> Iterator[Hashable]:
        yield _ANY
        if request.action is not None:
            yield from self._packet_probes(request)
        path, host, kinds = request.path, request.host, self._kinds
        if "method" in kinds:
            yield ("method", request.method)
        if host is not None and "host" in kinds:
            yield ("host", host)
            end = host.find(".")
            while end >= 0:
                yield ("host", host[end:])
                end = host.find(".", end + 1)
        if path is None:
            return
        yield path
        end = 0
        for _ in range(self._depth):
            end = path.find("/", end) + 1
            if not end:
                break
            yield ("below", path[:end])
        if "template" in kinds:
            segments = path.count("/")
            yield ("template", segments, path[1:].partition("/")[0])
            yield ("template", segments, None)

    def _packet_probes(self, request: RequestFacts) -> Iterator[Hashable]:
        yield ("action", request.action)
        if request.action != "Publish" or request.topic is None:
            return
        yield ("topic", "")
        levels, end = f"{request.topic}/", 0
        for _ in range(self._topic_depth):
            end = levels.find("/", end) + 1
            if not end:
                break
            yield ("topic", levels[:end])


class _Chain:
    """The stages of one decision, in their order."""

    def __init__(self, deny: _Stage, allow: Sequence[_Stage]) -> None:
        self._deny, self._allow = deny, tuple(allow)
        stages = (deny, *self._allow)
        self.depends_on_request = any(stage.depends_on_request for stage in stages)
        self.depends_on_http = any(stage.depends_on_http for stage in stages)

    def decide(self, request: RequestFacts) -> Decision:
        denied = self._deny.first(request)
        if denied is not None:
            return Decision(False, (denied,))
        matched = []
        for stage in self._allow:
            allowed = stage.first(request)
            if allowed is None:
                return Decision(False, (_NO_RULE,))
            matched.append(allowed)
        return Decision(True, tuple(matched)) if matched else Decision(False, (_NO_RULE,))


class _Narrowed:
    """What is left of a set for connections with which the same rules remain."""

    def __init__(self, left: Sequence[tuple[AuthorizationPolicy, _RequestRule]], ranks: _Ranks) -> None:
        def stage(action: Action, *, dry_run: bool = True, rank: int | None = None) -> _Stage:
            return _Stage(
                [
                    rule
                    for policy, rule in left
                    if policy.action is action and (policy.enforced or dry_run) and rank in (None, policy.rank)
                ]
            )

        def chain(allowing: Iterable[int], *, dry_run: bool) -> _Chain:
            return _Chain(
                stage(Action.DENY, dry_run=dry_run),
                [stage(Action.ALLOW, dry_run=dry_run, rank=rank) for rank in allowing],
            )

        self.enforced = chain(ranks.enforced, dry_run=False)
        self.dry_run = chain(ranks.dry_run, dry_run=True) if ranks.has_dry_run else None
        audits = [rule for policy, rule in left if policy.action is Action.AUDIT]
        self.audit = _Stage(audits)
        self.observed = self.dry_run is not None or bool(audits)
        deciding = (rule for policy, rule in left if policy.enforced and policy.action is not Action.AUDIT)
        targets = [target for rule in deciding for target in rule.targets] if self.enforced.depends_on_http else []
        self.depends_on_path = any(target.paths for target in targets)
        self.depends_on_host = any(target.hosts for target in targets)


class ConnectionPolicy:
    """
    A set of policies, narrowed to one kind of connection.

    Attributes:
        depends_on_request: otherwise every request and every MQTT packet gets the same decision.
        depends_on_http: otherwise every HTTP request gets the same decision, whatever rules there are on MQTT.
        depends_on_path: whether the decision needs the path, which must then have one reading.
        depends_on_host: the same of the host.
        observed: whether policies in dry run or Audit policies look at requests.
    """

    def __init__(self, identity: SpiffeID, narrowed: _Narrowed) -> None:
        self._identity = identity
        self._narrowed = narrowed
        self.depends_on_request = narrowed.enforced.depends_on_request
        self.depends_on_http = narrowed.enforced.depends_on_http
        self.depends_on_path = narrowed.depends_on_path
        self.depends_on_host = narrowed.depends_on_host
        self.observed = narrowed.observed

    def decide(self, request: RequestFacts) -> Decision:
        """What the enforced policies say."""
        return self._narrowed.enforced.decide(request)

    def dry_run(self, request: RequestFacts) -> Decision | None:
        """What all policies would say if those in dry run were enforced; None where there are none."""
        chain = self._narrowed.dry_run
        return None if chain is None else chain.decide(request)

    def audited(self, request: RequestFacts) -> list[MatchedRule]:
        """The rules of Audit policies that match."""
        return self._narrowed.audit.every(request)

    def authorize(self, request: RequestFacts) -> Permit:
        """
        Decide on a request.

        Raises:
            Denied: with the policy and the rule that refuse it.
        """
        decision = self.decide(request)
        if decision.allowed:
            matched = decision.matched
            bounded = any(each.minimum is not None or each.maximum is not None for each in matched)
            return Permit(self._identity, matched, bounded)
        refusing = decision.matched[0]
        raise Denied(identity=self._identity, policy=refusing.policy, rule=refusing.rule)


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Those of Allow policies, the lowest first: of the enforced ones, of all; and whether there is any dry run."""

    enforced: tuple[int, ...]
    dry_run: tuple[int, ...]
    has_dry_run: bool


class PolicySet:
    """All policies of a proxy."""

    def __init__(self, policies: Iterable[AuthorizationPolicy]) -> None:
        self.policies = tuple(policies)
        rules = [_PolicyRule(policy, rule) for policy in self.policies for rule in policy.rules]
        self._index = _Index(rules, _PolicyRule.index_keys)
        allowing = [each for each in self.policies if each.action is Action.ALLOW]
        self._ranks = _Ranks(
            enforced=tuple(sorted({each.rank for each in allowing if each.enforced})),
            dry_run=tuple(sorted({each.rank for each in allowing})),
            has_dry_run=any(not each.enforced and each.action is not Action.AUDIT for each in self.policies),
        )
        self._narrowed: dict[tuple[_RequestRule, ...], _Narrowed] = {}

    def connection(self, facts: ConnectionFacts) -> ConnectionPolicy:
        """The set, narrowed to a connection."""
        candidates = self._index.candidates(_source_probes(facts))
        left = [(each.policy, rule) for each in candidates if (rule := each.narrowed(facts)) is not None]
        rules = tuple(rule for _policy, rule in left)
        narrowed = cached(self._narrowed, rules, lambda: _Narrowed(left, self._ranks))
        return ConnectionPolicy(facts.identity, narrowed)


def cached(cache: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """The value of a key; where it is new it takes the place of the oldest."""
    value = cache.get(key)
    if value is None:
        if len(cache) >= CACHE_SIZE:
            del cache[next(iter(cache))]
        value = cache[key] = make()
    return value
