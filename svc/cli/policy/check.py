"""``svc policy check``: validates policy files, names rules that never decide, and explains one decision."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from svc.cli.errors import UsageRefused
from svc.cli.globals import Invocation
from svc.cli.policy.files import PolicySources
from svc.policy.engine import DEFAULT_DENY, Decision, MatchedRule
from svc.policy.shadowing import Shadowed, shadowed_rules
from svc.policyfiles.cases import Explanation, Question, explain
from svc.policyfiles.settings import Policies
from svc.settings import ConfigInvalid, parse

#: Flags of the question by the keys of a case.
QUESTION = {
    "as": "as_",
    "own": "own",
    "level": "level",
    "compartment": "compartment",
    "listener": "listener",
    "port": "port",
    "sni": "sni",
    "alpn": "alpn",
    "postQuantum": "post_quantum",
    "method": "method",
    "path": "path",
    "host": "host",
    "asked": "asked",
    "mqttAction": "mqtt_action",
    "topic": "topic",
    "clientID": "client_id",
}


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The parsed flags of one ``svc policy check``; without a question the files are validated."""

    sources: PolicySources
    question: Question | None
    json: bool

    @classmethod
    def read(cls, words: Sequence[str], values: Mapping[str, Any]) -> CheckPlan:
        """Check and parse the flags of the command, given by name."""
        given = {key: values[name] for key, name in QUESTION.items() if values[name] is not None}
        question = None
        if "as" in given:
            # The query is no part of what policies look at.
            if "path" in given:
                given["path"] = given["path"].partition("?")[0]
            if "mqttAction" in given:
                given["mqttAction"] = given["mqttAction"].capitalize()
            try:
                question = parse(json.dumps(given), Question)
            except ConfigInvalid as error:
                problem = error.problems[0]
                flag = QUESTION.get(problem.key, "").strip("_").replace("_", "-")
                sentence = f"--{flag} does not accept {problem.value}" if flag else "the flags do not fit together"
                raise UsageRefused(sentence, f"expected: {problem.expected}") from error
        elif given:
            raise UsageRefused("the client is not named", "give --as SPIFFE-ID beside what it asks for")
        return cls(PolicySources.read(words, values), question, values["output"] == "json")


def run_check(plan: CheckPlan, invocation: Invocation) -> int:
    """Carry out ``svc policy check``; returns the exit status."""
    policies, _cases = plan.sources.load()
    explanation = None if plan.question is None else explain(policies, plan.question)
    shadowed = list(shadowed_rules(policies.rules.policies))
    if plan.json:
        invocation.console.write_text(json.dumps(_document(policies, explanation, shadowed)) + "\n")
        return 0
    lines = [_summary(policies)] if explanation is None else list(explained(explanation))
    lines += [
        f"shadowed: the rule {each.rule} of {each.policy} never decides, {each.by_rule} of {each.by_policy} matches all"
        " that it matches"
        for each in shadowed
    ]
    invocation.console.write_text("".join(f"{line}\n" for line in lines))
    return 0


def explained(explanation: Explanation) -> Iterator[str]:
    """The lines that explain a decision."""
    decision = explanation.decision
    if decision is None:
        yield f"denied: {explanation.refused}"
        return
    yield decided(decision)
    for name in ("minimum", "maximum"):
        for each in decision.matched:
            if getattr(each, name) is not None:
                yield f"notarization: {name} {getattr(each, name)} by {_rule(each)}"
    if explanation.dry_run is not None:
        yield f"dry run: {decided(explanation.dry_run)}"
    for each in explanation.audited:
        yield f"audited: {_rule(each)}"


def decided(decision: Decision) -> str:
    """One decision in words."""
    rules = " and ".join(_rule(each) for each in decision.matched)
    if decision.allowed:
        return f"allowed: {rules}"
    return (
        f"denied: {'no rule allows it (' + DEFAULT_DENY + ')' if decision.matched[0].rule == DEFAULT_DENY else rules}"
    )


def _rule(matched: MatchedRule) -> str:
    return f"the rule {matched.rule} of {matched.policy}"


def _counts(policies: Policies) -> dict[str, int]:
    files = policies.files
    rules = sum(len(each.rules) for each in files.policies)
    return {
        "files": len(files.paths),
        "policies": len(files.policies),
        "rules": rules,
        "denyLists": len(files.denied),
    }


def _summary(policies: Policies) -> str:
    counts = _counts(policies)
    return (
        f"valid: {counts['files']} files, {counts['policies']} policies, {counts['rules']} rules,"
        f" {counts['denyLists']} deny lists"
    )


def _document(policies: Policies, explanation: Explanation | None, shadowed: Sequence[Shadowed]) -> dict[str, Any]:
    return {
        **_counts(policies),
        "decision": None if explanation is None else explanation_json(explanation),
        "shadowed": [
            {"policy": each.policy, "rule": each.rule, "byPolicy": each.by_policy, "byRule": each.by_rule}
            for each in shadowed
        ],
    }


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """A decision and what led to it, for JSON."""
    decision, trial = explanation.decision, explanation.dry_run
    return {
        "allowed": explanation.allowed,
        "matched": [] if decision is None else [asdict(each) for each in decision.matched],
        "refused": explanation.refused or None,
        "dryRun": None
        if trial is None
        else {"allowed": trial.allowed, "matched": [asdict(each) for each in trial.matched]},
        "audited": [{"policy": each.policy, "rule": each.rule} for each in explanation.audited],
    }
