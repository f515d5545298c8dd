"""
Whether the process is ready, and if not, why.

A condition counts as failed until it is set. Required conditions decide about readiness; optional ones are only
shown, since taking the process out of service would not help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from svc.errors import SvcError

#: Conditions of the proxy; those of the notary only where there is one.
PROXY_CONDITIONS: Final = ("credentials", "workloadApi", "store", "listeners", "pqIssuer")
#: Conditions that are optional unless the configuration requires them.
PROXY_OPTIONAL: Final = ("workloadApi", "store", "pqIssuer")
#: Conditions of the notary, which a proxy with outbound listeners alone does not have.
NOTARY_CONDITIONS: Final = ("store", "pqIssuer")


class ConditionUnknown(SvcError):
    """no condition is called {name}"""

    reason = "condition_unknown"
    name: str


@dataclass(frozen=True)
class Condition:
    """
    One named condition.

    Attributes:
        reason: such as ``notary_unavailable``; empty while the condition holds.
        since: when ``holds`` last changed.
        required: whether the process is ready only while it holds.
    """

    name: str
    holds: bool
    reason: str
    message: str
    since: datetime
    required: bool = True

    def as_json(self) -> dict[str, object]:
        """The members of the condition on the health page."""
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
        start, not_required = now(), frozenset(optional)
        self._conditions = {
            name: Condition(name, False, "not_yet_known", "", start, name not in not_required) for name in names
        }
        self._draining = False
        self._was_ready = self.ready

    @property
    def ready(self) -> bool:
        """Whether every required condition holds and no drain has begun."""
        return not self._draining and not self.failing

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(self._conditions.values())

    @property
    def failing(self) -> tuple[Condition, ...]:
        """The required conditions that do not hold."""
        return tuple(each for each in self._conditions.values() if each.required and not each.holds)

    def condition(self, name: str) -> Condition:
        found = self._conditions.get(name)
        if found is None:
            raise ConditionUnknown(name=name)
        return found

    def add_optional(self, name: str) -> None:
        """Have one more condition that is only shown, unless there is one of this name already."""
        self._conditions.setdefault(name, Condition(name, False, "not_yet_known", "", self._now(), required=False))

    def holds(self, name: str, message: str = "") -> None:
        """Set that a condition holds; ``message`` may still warn."""
        self._set(name, True, "", message)

    def require(self, name: str, required: bool) -> None:
        """Make a condition required or optional."""
        self._conditions[name] = replace(self.condition(name), required=required)
        self._report()

    def fails(self, name: str, reason: str, message: str = "") -> None:
        """Set that a condition does not hold."""
        self._set(name, False, reason, message)

    def fails_with(self, name: str, error: SvcError) -> None:
        """Set that a condition does not hold because of an error."""
        self._set(name, False, error.reason, str(error))

    def report(self, name: str, error: SvcError | None) -> None:
        """Set a condition, which holds where there is no error."""
        if error is None:
            self.holds(name)
        else:
            self.fails_with(name, error)

    def drain(self) -> None:
        """Become not ready for good."""
        self._draining = True
        self._report()

    def _set(self, name: str, holds: bool, reason: str, message: str) -> None:
        old = self.condition(name)
        since = old.since if old.holds == holds else self._now()
        self._conditions[name] = replace(old, holds=holds, reason=reason, message=message, since=since)
        self._report()

    def _report(self) -> None:
        ready = self.ready
        if ready != self._was_ready:
            self._was_ready = ready
            self._changed(ready)
