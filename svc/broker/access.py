"""
Access rules: who may connect, publish and subscribe to which topics. Nothing is allowed that no rule allows.

Owns the decision and its interface; how a client is identified is the business of the connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Final, Protocol

from svc.identity import SpiffeID
from svc.identity.matchers import Matcher
from svc.wire.mqtt import covers, matches, split_shared

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence

#: Identities whose rules are cached.
CACHED_IDENTITIES: Final = 1000
_ANONYMOUS: Final = "anonymous "


@dataclass(frozen=True, slots=True)
class Principal:
    """
    The client of a connection.

    Args:
        spiffe_id: the verified identity, or None for clients without one.
        address: of the client, for logs.
        listener: the listener's name.
        evidence: the result of the TLS handshake, or None.
    """

    spiffe_id: SpiffeID | None
    address: str = ""
    listener: str = ""
    evidence: PeerEvidence | None = field(default=None, repr=False, compare=False)

    @property
    def owner(self) -> str:
        """The owner of its sessions: the identity, or for clients without one the listener."""
        # Each session stores it: sessions of one owner share one string.
        return intern(f"{_ANONYMOUS}{self.listener}" if self.spiffe_id is None else str(self.spiffe_id))

    @classmethod
    def from_owner(cls, owner: str) -> Principal:
        """
        Parse :attr:`owner`; the listener of an identity is not part of it.

        Raises:
            SpiffeIdMalformed: no session can have this owner.
        """
        if owner.startswith(_ANONYMOUS):
            return cls(None, listener=owner.removeprefix(_ANONYMOUS))
        return cls(SpiffeID.parse(owner))


class Guard(Protocol):
    """Authorizes clients; is called for each message of a new topic and must not raise."""

    def may_connect(self, principal: Principal) -> bool:
        """
        Whether any rule applies to a client, which may have a session only then.

        At a start it is called for the owners of stored sessions too, see :meth:`Principal.from_owner`.
        """

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Whether a client may publish to a topic."""

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Whether a client may receive all that a filter, shared or not, can match."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """
    One access rule.

    Args:
        who: the identities; None is clients without one.
        publish: filters of the topics that may be published to.
        subscribe: filters of the topics that may be received.
    """

    who: Matcher | None
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    def applies_to(self, principal: Principal) -> bool:
        """Whether the client is among its identities."""
        if self.who is None:
            return principal.spiffe_id is None
        return principal.spiffe_id is not None and self.who.matches(principal.spiffe_id)


@dataclass(frozen=True, slots=True)
class Rules:
    """A guard that allows what any of its rules allows; topics below ``$SYS`` cannot be published to."""

    rules: Sequence[AccessRule] = field(default_factory=tuple)
    _cache: dict[SpiffeID | None, tuple[AccessRule, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def may_connect(self, principal: Principal) -> bool:
        """Whether a rule applies to the client, whatever that rule allows."""
        return bool(self._rules_of(principal))

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Whether a rule allows the topic."""
        if _is_sys_topic(topic):
            return False
        return any(matches(allowed, topic) for rule in self._rules_of(principal) for allowed in rule.publish)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Whether a filter of one rule covers all that the requested filter can match."""
        share = split_shared(topic_filter)
        requested = share.filter if share else topic_filter
        return any(covers(allowed, requested) for rule in self._rules_of(principal) for allowed in rule.subscribe)

    def _rules_of(self, principal: Principal) -> tuple[AccessRule, ...]:
        """Cached: they are needed for each message of a new topic, and there may be hundreds of rules."""
        identity = principal.spiffe_id
        found = self._cache.get(identity)
        if found is None:
            if len(self._cache) >= CACHED_IDENTITIES:
                self._cache.clear()
            found = self._cache[identity] = tuple(rule for rule in self.rules if rule.applies_to(principal))
        return found


class AllowAll:
    """A guard that allows everything but publishing below ``$SYS``, for clients of this machine."""

    def may_connect(self, principal: Principal) -> bool:
        """Allow it."""
        return True

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Allow all topics but those below ``$SYS``."""
        return not _is_sys_topic(topic)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Allow it."""
        return True


class ListenerGuard:
    """
    A guard with separate rules for each listener.

    Args:
        rules: by the listener's name.
        verified: the names of the listeners whose clients have an identity.
    """

    def __init__(self, rules: Mapping[str, Guard], verified: Collection[str] = ()) -> None:
        self._names = verified
        self.replace(rules)

    def replace(self, rules: Mapping[str, Guard]) -> None:
        """Use other rules from now on."""
        self._rules = rules
        self._verified = [rules[name] for name in self._names]

    def may_connect(self, principal: Principal) -> bool:
        """Apply the rules of the client's listener; to a session's owner those of all where it could resume it."""
        return any(each.may_connect(principal) for each in self._guards_of(principal))

    def _guards_of(self, principal: Principal) -> Sequence[Guard]:
        rules = self._rules.get(principal.listener)
        if rules is not None:
            return (rules,)
        return self._verified if principal.spiffe_id is not None else ()

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Apply the rules of the client's listener."""
        return self._rules[principal.listener].may_publish(principal, topic)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Apply the same rules as for the connection."""
        return any(each.may_subscribe(principal, topic_filter) for each in self._guards_of(principal))


def _is_sys_topic(topic: str) -> bool:
    return topic == "$SYS" or topic.startswith("$SYS/")
