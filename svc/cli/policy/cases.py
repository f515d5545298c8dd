"""``svc policy test``: compares the decisions of policy files with tables of expected ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc.cli.errors import CliError, CommandFailed
from svc.cli.globals import Invocation
from svc.cli.policy.files import PolicySources
from svc.policyfiles.cases import Case, CaseResult, run_cases


@dataclass(frozen=True, slots=True)
class TestPlan:
    """The parsed flags of one ``svc policy test``."""

    sources: PolicySources
    json: bool

    @classmethod
    def read(cls, words: Sequence[str], values: Mapping[str, Any]) -> TestPlan:
        """Check and parse the flags of the command, given by name."""
        return cls(PolicySources.read(words, values), values["output"] == "json")


def run_test(plan: TestPlan, invocation: Invocation) -> int:
    """Carry out ``svc policy test``; returns the exit status, 1 where a case fails."""
    policies, named = plan.sources.load()
    if not named:
        raise CommandFailed(CliError("policy_cases_missing"))
    results = run_cases(policies, [case for _name, case in named])
    failed = [each for each in results if each.failed]
    if plan.json:
        document = {"cases": len(results), "failed": [_json(each, named) for each in failed]}
        invocation.console.write_text(json.dumps(document) + "\n")
    else:
        lines = [f"{_where(each, named)}: {_asked(each.case)}: {each.failed}" for each in failed]
        lines.append(f"{len(results)} cases, {len(failed)} failed")
        invocation.console.write_text("".join(f"{line}\n" for line in lines))
    return 1 if failed else 0


def _where(result: CaseResult, named: Sequence[tuple[str, Case]]) -> str:
    """The table and the number of a case in it."""
    name = named[result.number - 1][0]
    first = next(number for number, (other, _case) in enumerate(named, 1) if other == name)
    return f"{name}, case {result.number - first + 1}"


def _asked(case: Case) -> str:
    method = case.method or ("GET" if case.path or case.host else None)
    words = (method, case.host, case.path, case.mqttAction, case.topic)
    return " ".join([*(word for word in words if word), f"as {case.as_}"])


def _json(result: CaseResult, named: Sequence[tuple[str, Case]]) -> dict[str, Any]:
    case = result.case.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"where": _where(result, named), "case": case, "failed": result.failed}
