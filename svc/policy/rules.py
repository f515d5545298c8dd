"""
Rules as values: what a policy says about clients, targets and conditions, each checked against known facts.

The fields of one entry must all hold; of the values of a field one must. A fact that is not known satisfies no list of
values; it satisfies a list of excluded values only where the rule denies or audits. A topic filter that a client
subscribes to is a set of topics: a rule that allows must match all of it, one that denies or audits any of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from svc.identity import Matcher, SpiffeID
from svc.policy.attributes import UNKNOWN, Attributes
from svc.policy.mqtt import ClientIdPattern
from svc.policy.paths import HostPattern, PathPattern
from svc.wire.mqtt.topics import covers, intersection, intersects, matches

#: What MQTT clients do that policies decide on.
MqttAction = Literal["Connect", "Publish", "Subscribe"]


class Action(Enum):
    """What a policy does with what its rules match."""

    ALLOW = "Allow"
    DENY = "Deny"
    AUDIT = "Audit"


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """
    What is known of a connection when its client is authorized.

    Attributes:
        listener: the name of the listener.
        port: its port.
        identity: the verified identity of the client.
        attributes: what the administrator's tables say of the client.
        own: the same of the workload behind the listener.
        post_quantum: whether the key agreement is.
        sni: the server name that the client sent, in lower case, empty without one.
        alpn: the application protocol agreed on, empty without one.
    """

    listener: str
    port: int
    identity: SpiffeID
    attributes: Attributes = UNKNOWN
    own: Attributes = UNKNOWN
    post_quantum: bool = False
    sni: str = ""
    alpn: str = ""


class RequestFacts(NamedTuple):
    """
    What is known of a request, or of an MQTT packet that is decided on; None for what its protocol does not have.

    Attributes:
        path: as :func:`svc.policy.paths.plain_path` returns it.
        host: as :func:`svc.policy.paths.plain_host` returns it.
        asked: the notarization level that the client asks for.
        action: what an MQTT client does.
        topic: the topic name of Publish, the topic filter of Subscribe without ``$share/group/``.
        client_id: the MQTT client identifier.
    """

    method: str | None = None
    path: str | None = None
    host: str | None = None
    asked: str | None = None
    action: MqttAction | None = None
    topic: str | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """Values that a fact must be among, and values that it must not be among."""

    wanted: frozenset[Hashable] = frozenset()
    excluded: frozenset[Hashable] = frozenset()

    def admits(self, fact: Hashable | None, *, unknown: bool) -> bool:
        """Whether a fact satisfies both; ``unknown``: whether a fact that is None satisfies the second."""
        if fact is None:
            return not self.wanted and (unknown or not self.excluded)
        return (not self.wanted or fact in self.wanted) and fact not in self.excluded

    def __bool__(self) -> bool:
        """Whether any fact is refused."""
        return bool(self.wanted or self.excluded)


@dataclass(frozen=True, slots=True)
class Patterns:
    """As :class:`Values`, of patterns."""

    wanted: tuple[PathPattern | HostPattern | ClientIdPattern, ...] = ()
    excluded: tuple[PathPattern | HostPattern | ClientIdPattern, ...] = ()

    def admits(self, fact: str | None, *, unknown: bool) -> bool:
        """See :meth:`Values.admits`."""
        if fact is None:
            return not self.wanted and (unknown or not self.excluded)
        # Without generators: this is done for every request.
        for each in self.excluded:
            if each.matches(fact):
                return False
        for each in self.wanted:
            if each.matches(fact):
                return True
        return not self.wanted

    def __bool__(self) -> bool:
        """Whether any fact is refused."""
        return bool(self.wanted or self.excluded)


@dataclass(frozen=True, slots=True)
class TopicFilters:
    """As :class:`Patterns`, of MQTT topic filters."""

    wanted: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def admits(self, facts: RequestFacts, *, unknown: bool) -> bool:
        """
        Whether the topic of a packet satisfies both. Of a requested filter all topics must, those of one wanted filter;
        with ``unknown`` it suffices that one may.
        """
        topic = facts.topic
        if topic is None:
            return not self.wanted and (unknown or not self.excluded)
        if facts.action != "Subscribe":
            return not any(matches(each, topic) for each in self.excluded) and (
                not self.wanted or any(matches(each, topic) for each in self.wanted)
            )
        if not unknown:
            return not any(intersects(each, topic) for each in self.excluded) and (
                not self.wanted or any(covers(each, topic) for each in self.wanted)
            )
        common = [intersection(each, topic) for each in self.wanted] if self.wanted else [topic]
        return any(
            each is not None and not any(covers(excluded, each) for excluded in self.excluded) for each in common
        )


@dataclass(frozen=True, slots=True)
class MqttTarget:
    """What an entry of ``to`` says of MQTT packets."""

    actions: Values = Values()
    topics: TopicFilters = TopicFilters()
    client_ids: Patterns = Patterns()

    def matches(self, facts: RequestFacts, *, unknown: bool) -> bool:
        """Whether what the packet shows fits."""
        return (
            self.actions.admits(facts.action, unknown=unknown)
            and self.topics.admits(facts, unknown=unknown)
            and self.client_ids.admits(facts.client_id, unknown=unknown)
        )

    @property
    def needs_packet(self) -> bool:
        """Whether nothing but an MQTT packet matches."""
        return bool(self.actions.wanted or self.topics.wanted or self.client_ids.wanted)


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of ``from``; ``same_compartment`` and ``dominates`` compare the client with the workload."""

    spiffe_ids: tuple[Matcher, ...] = ()
    not_spiffe_ids: tuple[Matcher, ...] = ()
    trust_domains: Values = Values()
    namespaces: Values = Values()
    service_accounts: Values = Values()
    levels: Values = Values()
    compartments: Values = Values()
    same_compartment: bool = False
    dominates: bool = False

    def matches(self, facts: ConnectionFacts, *, unknown: bool) -> bool:
        """Whether a client is one of these."""
        identity, known, own = facts.identity, facts.attributes, facts.own
        if self.spiffe_ids and not any(each.matches(identity) for each in self.spiffe_ids):
            return False
        if any(each.matches(identity) for each in self.not_spiffe_ids):
            return False
        if self.same_compartment and (known.compartment is None or known.compartment != own.compartment):
            return False
        if self.dominates and (known.level is None or own.level is None or not known.level.dominates(own.level)):
            return False
        return (
            self.trust_domains.admits(identity.trust_domain, unknown=unknown)
            and self.namespaces.admits(known.namespace, unknown=unknown)
            and self.service_accounts.admits(known.service_account, unknown=unknown)
            and self.levels.admits(known.level, unknown=unknown)
            and self.compartments.admits(known.compartment, unknown=unknown)
        )


@dataclass(frozen=True, slots=True)
class RuleTarget:
    """One entry of ``to``; ``mqtt`` is None where it says nothing of MQTT."""

    listeners: Values = Values()
    ports: Values = Values()
    snis: Patterns = Patterns()
    alpns: Values = Values()
    hosts: Patterns = Patterns()
    methods: Values = Values()
    paths: Patterns = Patterns()
    mqtt: MqttTarget | None = None

    def matches_connection(self, facts: ConnectionFacts, *, unknown: bool) -> bool:
        """Whether what the connection alone shows fits."""
        return (
            self.listeners.admits(facts.listener, unknown=unknown)
            and self.ports.admits(facts.port, unknown=unknown)
            and self.snis.admits(facts.sni or None, unknown=unknown)
            and self.alpns.admits(facts.alpn or None, unknown=unknown)
        )

    def matches_request(self, facts: RequestFacts, *, unknown: bool) -> bool:
        """Whether what the request shows fits."""
        return (
            self.methods.admits(facts.method, unknown=unknown)
            and self.paths.admits(facts.path, unknown=unknown)
            and self.hosts.admits(facts.host, unknown=unknown)
            and (self.mqtt is None or self.mqtt.matches(facts, unknown=unknown))
        )

    @property
    def depends_on_connection(self) -> bool:
        """Whether listener, port, server name or application protocol can make a difference."""
        return bool(self.listeners or self.ports or self.snis or self.alpns)

    @property
    def depends_on_request(self) -> bool:
        """Whether a request can make a difference."""
        return bool(self.methods or self.paths or self.hosts or self.mqtt)


@dataclass(frozen=True, slots=True)
class RuleCondition:
    """One entry of ``when``; ``asked``: notarization levels that the client asks for."""

    post_quantum: bool | None = None
    asked: Values = Values()

    @property
    def depends_on_connection(self) -> bool:
        """Whether the key agreement can make a difference."""
        return self.post_quantum is not None

    def matches_connection(self, facts: ConnectionFacts) -> bool:
        """Whether what the connection alone shows fits."""
        return self.post_quantum is None or self.post_quantum == facts.post_quantum


@dataclass(frozen=True, slots=True)
class Rule:
    """
    One rule; an empty list of sources, targets or conditions is satisfied by everything.

    Attributes:
        minimum: the notarization level that what it allows gets at least; None without one.
        maximum: the strongest one that it gets; None without a limit.
    """

    name: str
    sources: tuple[Source, ...] = ()
    targets: tuple[RuleTarget, ...] = ()
    conditions: tuple[RuleCondition, ...] = ()
    minimum: str | None = None
    maximum: str | None = None


@dataclass(frozen=True, slots=True)
class AuthorizationPolicy:
    """
    One policy; without rules it matches nothing.

    Attributes:
        name: names it in decisions.
        namespace: of a policy that belongs to one.
        enforced: otherwise what it would change is only reported (``DryRun``).
        rank: among policies that allow. Of each rank that there is one has to allow, so that those of a higher rank
            only narrow what those of a lower one allow. Unless given, a policy that belongs to a namespace has a higher
            one than those that belong to none.
    """

    name: str
    action: Action
    rules: tuple[Rule, ...] = ()
    namespace: str = ""
    enforced: bool = True
    rank: int = -1

    def __post_init__(self) -> None:
        if self.rank < 0:
            object.__setattr__(self, "rank", 2 if self.namespace else 0)

    @property
    def qualified_name(self) -> str:
        """The name, with the namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
