"""
Whether the process can do its work, and if not, why.

Owns the named conditions; what they mean is known to those who set them. A condition counts as failed until someone
says that it holds. Those that are required decide about readiness; the others are shown beside them, since taking a
process out of service would make their trouble worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from svc.errors import SvcError

#: Conditions of the proxy; those of the notary only where there is one.
PROXY_CONDITIONS: Final = ("credentials", "workloadApi", "store", "listeners", "pqIssuer")
#: Those that are shown only, unless the configuration makes them necessary.
PROXY_OPTIONAL: Final = ("workloadApi", "store", "pqIssuer")
#: Those of the notary, which a proxy with outbound listeners alone does not have.
NOTARY_CONDITIONS: Final = ("store", "pqIssuer")


class ConditionUnknown(SvcError):
    """no condition is called {name}"""

    reason = "condition_unknown"
    name: str


@dataclass(frozen=True)
class Condition:
    """
    One named condition.

    Args:
        name: such as ``store``.
        holds: whether it does.
        reason: one word for why not, such as ``notary_unavailable``; empty while it holds.
        message: a sentence for people.
        since: since when ``holds`` is what it is.
        required: whether the process is ready only while it holds.
    """

    name: str
    holds: bool
    reason: str
    message: str
    since: datetime
    required: bool = True

    def as_json(self) -> dict[str, object]:
        """
        Write the condition as it stands on the page.

        Returns:
            Members for JSON.
        """
        shown: dict[str, object] = {
            "name": self.name,
            "ok": self.holds,
            "required": self.required,
            "since": self.since.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        if self.reason:
            shown["reason"] = self.reason
        if self.message:
            shown["message"] = self.message
        return shown


class Health:
    """
    The conditions of a process.

    Args:
        names: all conditions.
        optional: those among them that need not hold.
        now: the current time.
        changed: called with the new value when :attr:`ready` changes.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        optional: Iterable[str] = (),
        now: Callable[[], datetime],
        changed: Callable[[bool], None] = lambda ready: None,
    ) -> None:
        self._now = now
        self._changed = changed
        start, left = now(), frozenset(optional)
        self._conditions = {
            name: Condition(name, False, "not_yet_known", "", start, name not in left) for name in names
        }
        self._draining = False
        self._was_ready = self.ready

    @property
    def ready(self) -> bool:
        """Whether new work should be sent here: every required condition holds and no drain has begun."""
        return not self._draining and not self.failing

    @property
    def draining(self) -> bool:
        """Whether a drain has begun."""
        return self._draining

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions in the order in which they were named."""
        return tuple(self._conditions.values())

    @property
    def failing(self) -> tuple[Condition, ...]:
        """The required conditions that do not hold."""
        return tuple(each for each in self._conditions.values() if each.required and not each.holds)

    def condition(self, name: str) -> Condition:
        """
        Find a condition.

        Args:
            name: the condition.

        Returns:
            It as it stands.

        Raises:
            ConditionUnknown: for a name that the constructor was not given.
        """
        found = self._conditions.get(name)
        if found is None:
            raise ConditionUnknown(name=name)
        return found

    def holds(self, name: str, message: str = "") -> None:
        """
        Say that a condition holds.

        Args:
            name: the condition.
            message: what is worth knowing all the same.

        Raises:
            ConditionUnknown: for a name that the constructor was not given.
        """
        self._set(name, True, "", message)

    def require(self, name: str, required: bool) -> None:
        """
        Say whether the process is ready only while a condition holds.

        Args:
            name: the condition.
            required: whether it is.

        Raises:
            ConditionUnknown: for a name that the constructor was not given.
        """
        self._conditions[name] = replace(self.condition(name), required=required)
        self._tell()

    def fails(self, name: str, reason: str, message: str = "") -> None:
        """
        Say that a condition does not hold.

        Args:
            name: the condition.
            reason: one word for why.
            message: a sentence for people.

        Raises:
            ConditionUnknown: for a name that the constructor was not given.
        """
        self._set(name, False, reason, message)

    def fails_with(self, name: str, error: SvcError) -> None:
        """
        Say that a condition does not hold because of an error.

        Args:
            name: the condition.
            error: why.

        Raises:
            ConditionUnknown: for a name that the constructor was not given.
        """
        self._set(name, False, error.reason, str(error))

    def drain(self) -> None:
        """Say that no new work should be sent here any more."""
        self._draining = True
        self._tell()

    def _set(self, name: str, holds: bool, reason: str, message: str) -> None:
        old = self.condition(name)
        since = old.since if old.holds == holds else self._now()
        self._conditions[name] = replace(old, holds=holds, reason=reason, message=message, since=since)
        self._tell()

    def _tell(self) -> None:
        ready = self.ready
        if ready != self._was_ready:
            self._was_ready = ready
            self._changed(ready)
