"""The status of policies: what became of one, as its conditions say it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from svc.errors import SvcError
from svc.kube.client import Object
from svc.kube.status import with_condition

#: Sentences that a message has.
MAX_SENTENCES: Final = 16
_Condition = tuple[Literal["True", "False", "Unknown"], str, str]


@dataclass(frozen=True)
class Outcome:
    """
    What became of a policy.

    Attributes:
        defects: why it is not valid; empty where it is.
        kept: whether proxies have what it said when it was valid.
        namespaces: how many enabled namespaces it is about.
        failure: why the proxies of one of them do not have it.
        conflicts: what other policies take from it.
        authorizes: whether it says who may do what: else nothing of it is for proxies that run.
    """

    defects: str = ""
    kept: bool = False
    namespaces: int = 0
    failure: SvcError | None = None
    conflicts: Sequence[str] = ()
    authorizes: bool = True


def policy_status(found: Object, outcome: Outcome, now: datetime) -> dict[str, Any]:
    """
    Return the status of an object.

    Args:
        found: the object; the transitions of its conditions go on.
        outcome: what became of it.
        now: aware.
    """
    conditions: list[Object] = (found.get("status") or {}).get("conditions") or []
    generation: int = found["metadata"].get("generation", 0)
    accepted, programmed = _accepted(outcome), _programmed(outcome)
    first = next((each for each in (accepted, programmed) if each[0] != "True"), programmed)
    for kind, condition in (
        ("Accepted", accepted),
        ("Programmed", programmed),
        ("Conflicted", _conflicted(outcome)),
        ("Ready", first),
    ):
        conditions = with_condition(conditions, kind, *condition, now, generation=generation)
    return {"observedGeneration": generation, "matchedNamespaces": outcome.namespaces, "conditions": conditions}


def _accepted(outcome: Outcome) -> _Condition:
    if outcome.defects:
        return "False", "Invalid", outcome.defects
    return "True", "Valid", "every key is known and every value valid"


def _programmed(outcome: Outcome) -> _Condition:
    if outcome.defects:
        kept = "what it said before stays in force" if outcome.kept else "nothing of it is in force"
        return "False", "Invalid", f"it is not valid: {kept}"
    if outcome.failure is not None:
        return "False", _reason(outcome.failure), f"{outcome.failure}; {outcome.failure.hint}"
    if not outcome.namespaces:
        return "True", "NoNamespace", "it is about no namespace whose pods get the proxy"
    if not outcome.authorizes:
        return "True", "Injection", "pods that are made from now on are injected by it"
    return "True", "Compiled", f"the policy files of {outcome.namespaces} namespace(s) have it"


def _reason(failure: SvcError) -> str:
    return "".join(part.capitalize() for part in failure.reason.split("_"))


def _conflicted(outcome: Outcome) -> _Condition:
    if not outcome.conflicts:
        return "False", "NoConflict", "no other policy takes an effect from it"
    more = len(outcome.conflicts) - MAX_SENTENCES
    shown = [*outcome.conflicts[:MAX_SENTENCES], *([f"and {more} more"] if more > 0 else [])]
    return "True", "Overlap", "; ".join(shown)
