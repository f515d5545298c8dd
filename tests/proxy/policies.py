"""Policies for tests of the proxy."""

from __future__ import annotations

from svc.identity import MemberOf, TrustDomain
from svc.policy.paths import PathPattern
from svc.policy.rules import Action, AuthorizationPolicy, Patterns, Rule, RuleTarget
from svc.policyfiles.settings import Policies


def admit_domain(name: str = "prod.example") -> Policies:
    """Admit all identities of a trust domain."""
    return Policies.admitting(MemberOf(TrustDomain.parse(name)))


def admit_nobody() -> Policies:
    """Admit no identity."""
    return Policies.of()


def path_rule(name: str, *paths: str, minimum: str | None = None, maximum: str | None = None) -> Rule:
    """A rule for paths."""
    targets = (RuleTarget(paths=Patterns(tuple(PathPattern.parse(each) for each in paths))),)
    return Rule(name, targets=targets, minimum=minimum, maximum=maximum)


def policy(action: Action, *rules: Rule, name: str = "p", enforced: bool = True) -> AuthorizationPolicy:
    """A policy of the cluster."""
    return AuthorizationPolicy(name, action, rules, enforced=enforced)


def allow_paths(*paths: str) -> Policies:
    """Allow everybody some paths."""
    return Policies.of(policy(Action.ALLOW, path_rule("open", *paths)))
