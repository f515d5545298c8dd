"""Tables of checks, and the results of one of them for facts that were read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from svc.errors import SvcError, printable

FactsT = TypeVar("FactsT")
_T = TypeVar("_T")
#: A clock that is off by less changes nothing; one that is off by more than the second refuses valid credentials.
CLOCK_TOLERANCE: Final = timedelta(seconds=5)
CLOCK_LIMIT: Final = timedelta(seconds=60)


class Level(StrEnum):
    """How bad something is; a result has the worst level of its findings."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Defect(NamedTuple):
    """What a check can find; sentence and remedy may contain the evidence, as in ``{name}``."""

    sentence: str
    remedy: str
    level: Level = Level.FAILED


class Found(NamedTuple):
    """A defect that is there: its code in the table of the check, and the evidence."""

    code: str
    evidence: Mapping[str, object]


def found(code: str, **evidence: object) -> Found:
    """Return a defect with its evidence."""
    return Found(code, evidence)


@dataclass(frozen=True, slots=True)
class Check(Generic[FactsT]):
    """
    One check.

    Args:
        name: the same word in text, JSON and documentation.
        title: what holds where nothing is found.
        find: returns what is wrong; may raise the error by which a fact could not be read.
        defects: all that it can find, by code.
        stops: whether nothing that follows can be known where it fails.
    """

    name: str
    title: str
    find: Callable[[FactsT], Iterable[Found]]
    defects: Mapping[str, Defect]
    stops: bool = False


class Finding(NamedTuple):
    """One thing that is wrong, as it is shown; all texts are printable."""

    code: str
    level: Level
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found; nothing where all is well."""

    name: str
    title: str
    findings: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        return worst(each.level for each in self.findings)


@dataclass(frozen=True, slots=True)
class Results:
    """
    What a table of checks found.

    Args:
        not_made: names of the checks that could not be made, since one before them failed.
    """

    results: tuple[Result, ...]
    not_made: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        """The worst level of all."""
        return worst(each.level for each in self.results)

    def count(self, level: Level) -> int:
        """How many checks have this level."""
        return sum(each.level is level for each in self.results)


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of some levels; OK of none."""
    return max(levels, key=list(Level).index, default=Level.OK)


def read(fact: _T | SvcError) -> _T:
    """Return a fact, or raise the error by which it could not be read."""
    if isinstance(fact, SvcError):
        raise fact
    return fact


def make_checks(checks: Sequence[Check[FactsT]], facts: FactsT) -> Results:
    """Make all checks of a table. What could not be read counts as failed: it is not known to be well."""
    results: list[Result] = []
    for number, check in enumerate(checks):
        result = Result(check.name, check.title, tuple(_findings(check, facts)))
        results.append(result)
        if check.stops and result.level is Level.FAILED:
            return Results(tuple(results), tuple(each.name for each in checks[number + 1 :]))
    return Results(tuple(results))


def _findings(check: Check[FactsT], facts: FactsT) -> list[Finding]:
    try:
        return [_finding(check.defects[code], code, evidence) for code, evidence in check.find(facts)]
    except SvcError as error:
        return [Finding(error.reason, Level.FAILED, str(error), error.hint)]


def _finding(defect: Defect, code: str, evidence: Mapping[str, object]) -> Finding:
    shown = {name: printable(value) for name, value in evidence.items()}
    return Finding(code, defect.level, defect.sentence.format_map(shown), defect.remedy.format_map(shown))


def clock_difference(difference: timedelta) -> list[Found]:
    """Return what is wrong with a clock that differs by so much; its defects are :data:`CLOCK_DEFECTS`."""
    off = abs(difference)
    if off <= CLOCK_TOLERANCE:
        return []
    where = "ahead of" if difference > timedelta() else "behind"
    seconds = round(off.total_seconds())
    return [found("off" if off > CLOCK_LIMIT else "drifting", seconds=seconds, where=where)]


def ago(earlier: datetime, now: datetime) -> str:
    """Return a duration in its largest unit, such as ``3 h``."""
    seconds = max(0, int((now - earlier).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
