"""The question, the two answers, and the interface between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from svc.errors import SvcError
from svc.identity import SpiffeID


class Denied(SvcError):
    """{identity} is not permitted here: {rule}"""

    reason = "policy_deny"
    http_status = 403
    hint = "allow this identity in the policy of the proxy that answers"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """
    What is asked.

    Args:
        identity: the verified identity that asks.
        method: the HTTP method, or an empty string where the protocol has none.
        path: the path in its normal form, or an empty string.
    """

    identity: SpiffeID
    method: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Permit:
    """
    The evidence that a request was authorized.

    Args:
        identity: who was permitted.
        rule: the name of the rule that permits.
    """

    identity: SpiffeID
    rule: str


class Policy(Protocol):
    """One policy of one listener."""

    @property
    def looks_at_requests(self) -> bool:
        """Whether the answer can depend on method or path; else one answer serves a whole connection."""

    def authorize(self, request: AccessRequest) -> Permit:
        """
        Decide.

        Args:
            request: who asks for what.

        Returns:
            The permit.

        Raises:
            Denied: with the identity and the rule that denies.
        """
