"""
Access rules: who may connect, publish and subscribe to which topics. Nothing is allowed that no rule allows.

Owns the decision and its interface; how a client is identified is the business of the connection.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from svc.identity import SpiffeID
from svc.identity.matchers import Matcher
from svc.wildcards import fits
from svc.wire.mqtt import covers, intersects, matches, split_shared

if TYPE_CHECKING:
    from svc.broker.passwordfile import PasswordHash
    from svc.transport.client_certificates import ClientCertificate
    from svc.transport.evidence import PeerEvidence

    #: What a client was identified by.
    ClientEvidence: TypeAlias = PeerEvidence | ClientCertificate | PasswordHash

#: Identities whose rules are cached.
CACHED_IDENTITIES: Final = 1000
_ANONYMOUS: Final = "anonymous "
_USER: Final = "user "
_CERTIFICATE: Final = "certificate "
#: Levels of a filter that stand for the client's identifier and for its name.
CLIENT_ID_LEVEL: Final = "%c"
NAME_LEVEL: Final = "%u"
#: The values that these levels may have.
_ONE_LEVEL: Final = re.compile(r"[^/+#$][^/+#]*")


@dataclass(frozen=True, slots=True)
class ClientName:
    """The name of a client without a SPIFFE ID: of a user in the password file, or in a certificate."""

    kind: Literal["user", "certificate"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Principal:
    """
    The client of a connection.

    Args:
        spiffe_id: the verified identity, or None for clients without one.
        address: of the client, for logs.
        listener: the listener's name.
        evidence: what it was identified by, or None.
        name: the verified name of a client without a SPIFFE ID, or None.
        client_id: its client identifier; empty before CONNECT.
    """

    spiffe_id: SpiffeID | None
    address: str = ""
    listener: str = ""
    evidence: ClientEvidence | None = field(default=None, repr=False, compare=False)
    name: ClientName | None = None
    client_id: str = ""

    @property
    def identity(self) -> SpiffeID | ClientName | None:
        """Who it is; None for anonymous clients."""
        return self.name if self.spiffe_id is None else self.spiffe_id

    @property
    def owner(self) -> str:
        """
        The owner of its sessions: the SPIFFE ID, the user, or the listener, with the name in a certificate of it.

        A certificate's name belongs to the listener, since another one may accept those of other authorities.
        """
        # Each session stores it: sessions of one owner share one string.
        if self.spiffe_id is not None:
            return intern(str(self.spiffe_id))
        if self.name is None:
            return intern(f"{_ANONYMOUS}{self.listener}")
        if self.name.kind == "user":
            return intern(f"{_USER}{self.name.name}")
        return intern(f"{_CERTIFICATE}{self.listener} {self.name.name}")

    @classmethod
    def from_owner(cls, owner: str, client_id: str = "") -> Principal:
        """
        Parse :attr:`owner`; the listener of a SPIFFE ID or a user is not part of it.

        Raises:
            SpiffeIdMalformed: no session can have this owner.
        """
        if owner.startswith(_ANONYMOUS):
            return cls(None, listener=owner.removeprefix(_ANONYMOUS), client_id=client_id)
        if owner.startswith(_USER):
            return cls(None, name=ClientName("user", owner.removeprefix(_USER)), client_id=client_id)
        if owner.startswith(_CERTIFICATE):
            listener, _, name = owner.removeprefix(_CERTIFICATE).partition(" ")
            return cls(None, listener=listener, name=ClientName("certificate", name), client_id=client_id)
        return cls(SpiffeID.parse(owner), client_id=client_id)


@dataclass(frozen=True)
class NamePattern:
    """Names of one kind; ``*`` in ``pattern`` stands for any characters, also for none."""

    kind: Literal["user", "certificate"]
    pattern: str

    def matches(self, name: ClientName) -> bool:
        """Whether a verified name is among them."""
        return name.kind == self.kind and fits(self.pattern.split("*"), name.name)


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

    In its filters the level ``%c`` stands for the client identifier and ``%u`` for the client's :class:`ClientName`.

    Args:
        who: the identities or names; None is clients without one.
        publish: filters of the topics that may be published to.
        subscribe: filters of the topics that may be received.
        deny_publish: filters of the topics that may not be published to, whatever any rule allows.
        deny_subscribe: filters of the topics that may not be received, in the same way.
    """

    who: Matcher | NamePattern | None
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    deny_publish: tuple[str, ...] = ()
    deny_subscribe: tuple[str, ...] = ()

    def applies_to(self, principal: Principal) -> bool:
        """Whether the client is among its identities."""
        if self.who is None:
            return principal.identity is None
        if isinstance(self.who, NamePattern):
            return principal.name is not None and self.who.matches(principal.name)
        return principal.spiffe_id is not None and self.who.matches(principal.spiffe_id)

    @property
    def only_denies(self) -> bool:
        """Whether it takes away and gives nothing, not even a connection."""
        return bool(self.deny_publish or self.deny_subscribe) and not (self.publish or self.subscribe)


@dataclass(frozen=True, slots=True)
class Rules:
    """
    A guard that allows what any of its rules allows and none denies.

    Topics below ``$SYS`` cannot be published to.
    """

    rules: Sequence[AccessRule] = field(default_factory=tuple)
    _cache: dict[SpiffeID | ClientName | None, tuple[AccessRule, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def may_connect(self, principal: Principal) -> bool:
        """Whether a rule applies to the client that does not only deny, whatever that rule allows."""
        return any(not rule.only_denies for rule in self._rules_of(principal))

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Whether a rule allows the topic, and none denies it."""
        if _is_sys_topic(topic):
            return False
        rules = self._rules_of(principal)
        if not any(matches(each, topic) for rule in rules for each in _substituted(rule.publish, principal)):
            return False
        denied = (substitute(each, principal) for rule in rules for each in rule.deny_publish)
        # A client whose name or identifier cannot be substituted is denied everything.
        return not any(each is None or matches(each, topic) for each in denied)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Whether a filter of one rule covers all that the requested filter can match, and no rule denies any of it."""
        share = split_shared(topic_filter)
        requested = share.filter if share else topic_filter
        rules = self._rules_of(principal)
        if not any(covers(each, requested) for rule in rules for each in _substituted(rule.subscribe, principal)):
            return False
        denied = (substitute(each, principal) for rule in rules for each in rule.deny_subscribe)
        return not any(each is None or intersects(each, requested) for each in denied)

    def _rules_of(self, principal: Principal) -> tuple[AccessRule, ...]:
        """Cached: they are needed for each message of a new topic, and there may be hundreds of rules."""
        identity = principal.identity
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
        verified: the names of the listeners whose clients have a SPIFFE ID.
        users: the names of the listeners whose clients log in with a password.
    """

    def __init__(self, rules: Mapping[str, Guard], verified: Collection[str] = (), users: Collection[str] = ()) -> None:
        self._names = verified
        self._user_listeners = users
        self.replace(rules)

    def replace(self, rules: Mapping[str, Guard]) -> None:
        """Use other rules from now on."""
        self._rules = rules
        self._verified = [rules[name] for name in self._names]
        self._users = [rules[name] for name in self._user_listeners]

    def may_connect(self, principal: Principal) -> bool:
        """Apply the rules of the client's listener; to a session's owner those of all where it could resume it."""
        return any(each.may_connect(principal) for each in self._guards_of(principal))

    def _guards_of(self, principal: Principal) -> Sequence[Guard]:
        rules = self._rules.get(principal.listener)
        if rules is not None:
            return (rules,)
        if principal.spiffe_id is not None:
            return self._verified
        return self._users if principal.name is not None and principal.name.kind == "user" else ()

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Apply the rules of the client's listener."""
        return self._rules[principal.listener].may_publish(principal, topic)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Apply the same rules as for the connection."""
        return any(each.may_subscribe(principal, topic_filter) for each in self._guards_of(principal))


def _is_sys_topic(topic: str) -> bool:
    return topic == "$SYS" or topic.startswith("$SYS/")


def _substituted(filters: Sequence[str], principal: Principal) -> Iterator[str]:
    """The filters for one client, without those for which it has no safe value."""
    return (found for each in filters if (found := substitute(each, principal)) is not None)


def substitute(topic_filter: str, principal: Principal) -> str | None:
    """
    Replace the levels ``%c`` and ``%u`` of a filter by the client identifier and the name of a client.

    Returns:
        None where such a value is absent or is not one ordinary level: with ``/``, ``+`` or ``#`` in it, or a ``$`` at
        its beginning, the filter would match other topics than meant.
    """
    if "%" not in topic_filter:
        return topic_filter
    name = "" if principal.name is None else principal.name.name
    values = {CLIENT_ID_LEVEL: principal.client_id, NAME_LEVEL: name}
    levels = []
    for level in topic_filter.split("/"):
        value = values.get(level, level)
        if level in values and not _ONE_LEVEL.fullmatch(value):
            return None
        levels.append(value)
    return "/".join(levels)
