"""Facts with which all is well, and a case for each thing that can be wrong: facts in which that alone is changed."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from svc.checks.model import Check, Level, Results, make_checks

FactsT = TypeVar("FactsT")


@dataclasses.dataclass(frozen=True)
class Case(Generic[FactsT]):
    """
    One thing that is wrong.

    Args:
        check: the check that finds it.
        code: what it finds.
        breaks: changes facts with which all is well.
        says: a part of the sentence.
    """

    check: str
    code: str
    breaks: Callable[[FactsT], FactsT]
    says: str = ""


def uncovered(checks: Sequence[Check[Any]], cases: Iterable[Case[Any]]) -> set[tuple[str, str]]:
    """Return checks and codes that no case produces."""
    return {(check.name, code) for check in checks for code in check.defects} - {(c.check, c.code) for c in cases}


def findings(results: Results) -> list[tuple[str, str]]:
    """Return the checks and codes of all findings."""
    return [(result.name, each.code) for result in results.results for each in result.findings]


def problems(checks: Sequence[Check[FactsT]], well: Callable[[], FactsT], cases: Iterable[Case[FactsT]]) -> list[str]:
    """Return what is not as it should be: each case gives its finding alone, with all texts filled in."""
    table = {check.name: check for check in checks}
    wrong = []
    for case in cases:
        results = make_checks(checks, case.breaks(copy.deepcopy(well())))
        if findings(results) != [(case.check, case.code)]:
            wrong.append(f"{case.check} {case.code}: {findings(results)}")
            continue
        (finding,) = (each for result in results.results for each in result.findings)
        defect = table[case.check].defects.get(case.code)
        if defect is not None and finding.level is not defect.level:
            wrong.append(f"{case.check} {case.code}: {finding.level}")
        if case.says not in finding.sentence or "{" in finding.sentence + finding.remedy or not finding.remedy:
            wrong.append(f"{case.check} {case.code}: {finding}")
        if results.level is Level.OK:
            wrong.append(f"{case.check} {case.code}: no result is worse than ok")
    return wrong
