"""
Who may do what: rules as values, and the decision by them.

``rules`` are the values, ``attributes`` what is known of workloads, ``paths`` the one reading of a request path,
``mqtt`` what rules name of MQTT, ``engine`` the decision, ``denylist`` what is refused before it, ``shadowing`` the
rules that never decide. Opening an upstream connection takes a ``Permit`` as an argument, so a missing check does not
type-check.
"""

from svc.policy.engine import Decision, Denied, Permit, PolicySet
from svc.policy.rules import AuthorizationPolicy, ConnectionFacts, RequestFacts, Rule

__all__ = [
    "AuthorizationPolicy",
    "ConnectionFacts",
    "Decision",
    "Denied",
    "Permit",
    "PolicySet",
    "RequestFacts",
    "Rule",
]
