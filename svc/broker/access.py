"""
Who may publish and subscribe to what.

Owns the decision and its interface; what an identity is, the connection knows. Nothing is allowed that no rule allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Final, Protocol

from svc.identity import SpiffeID
from svc.identity.matchers import Matcher
from svc.wire.mqtt import matches, shared

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence

#: Identities whose rules are remembered.
REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Principal:
    """
    Who is at the other end of a connection.

    Args:
        spiffe_id: the verified identity, or None for anonymous clients of a plain listener.
        address: where it comes from, for people.
        listener: the listener that it came to.
        evidence: what its handshake proved, or None.
    """

    spiffe_id: SpiffeID | None
    address: str = ""
    listener: str = ""
    evidence: PeerEvidence | None = field(default=None, repr=False, compare=False)

    @property
    def owner(self) -> str:
        """What a session is bound to: the identity, or for clients without one the listener that they came to."""
        # Each session keeps it: those of one owner keep one text.
        return intern(f"anonymous {self.listener}" if self.spiffe_id is None else str(self.spiffe_id))


class Guard(Protocol):
    """Decides; must be fast and must not raise."""

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Say whether an identity may publish to a topic."""

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Say whether an identity may receive all that a filter, shared or not, can match."""


@dataclass(frozen=True, slots=True)
class Rule:
    """
    One rule.

    Args:
        who: the identities; None is anonymous clients.
        publish: topic filters that may be published to.
        subscribe: topic filters that may be received.
    """

    who: Matcher | None
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()

    def concerns(self, principal: Principal) -> bool:
        """
        Say whether the rule is about somebody.

        Args:
            principal: who.

        Returns:
            Whether it is.
        """
        if self.who is None:
            return principal.spiffe_id is None
        return principal.spiffe_id is not None and self.who.matches(principal.spiffe_id)


@dataclass(frozen=True, slots=True)
class Rules:
    """
    A guard by rules: what any of them allows is allowed.

    Args:
        rules: the rules.
    """

    rules: Sequence[Rule] = field(default_factory=tuple)
    _known: dict[SpiffeID | None, tuple[Rule, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """
        Decide about a message.

        Args:
            principal: who publishes.
            topic: a valid topic name.

        Returns:
            Whether a rule allows it. ``$SYS`` belongs to the broker.
        """
        if _is_own(topic):
            return False
        return any(matches(allowed, topic) for rule in self._concerning(principal) for allowed in rule.publish)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """
        Decide about a subscription.

        Args:
            principal: who subscribes.
            topic_filter: a valid filter.

        Returns:
            Whether one rule's filter covers all that this one can match.
        """
        share = shared(topic_filter)
        wanted = share.filter if share else topic_filter
        return any(covers(allowed, wanted) for rule in self._concerning(principal) for allowed in rule.subscribe)

    def _concerning(self, principal: Principal) -> tuple[Rule, ...]:
        """Find the rules about somebody, once: each message of a new topic asks for them, of hundreds perhaps."""
        who = principal.spiffe_id
        found = self._known.get(who)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[who] = tuple(rule for rule in self.rules if rule.concerns(principal))
        return found


class Everything:
    """A guard that lets everybody do everything but publish below ``$SYS``, for clients of one's own machine."""

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """
        Allow all topics, those with ``$`` too, but for the broker's own.

        Args:
            principal: who publishes.
            topic: a valid topic name.

        Returns:
            Whether it is none of the broker's own.
        """
        return not _is_own(topic)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """
        Allow it.

        Args:
            principal: who subscribes.
            topic_filter: a valid filter.

        Returns:
            True.
        """
        return True


def _is_own(topic: str) -> bool:
    return topic == "$SYS" or topic.startswith("$SYS/")


def covers(allowed: str, wanted: str) -> bool:
    """
    Say whether one filter matches everything that another one can match.

    Args:
        allowed: a valid filter.
        wanted: a valid filter.

    Returns:
        Whether it does; ``#`` and ``+`` at the beginning never cover a filter that begins with ``$`` [MQTT-4.7.2-1].
    """
    if wanted[0] == "$" and allowed[0] in "#+":
        return False
    have, want = allowed.split("/"), wanted.split("/")
    for position, level in enumerate(have):
        if level == "#":
            return True
        if position == len(want) or want[position] == "#":
            return False
        if level not in ("+", want[position]):
            return False
    return len(have) == len(want)
