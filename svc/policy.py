"""
Authorization: ``authorize(request)`` returns a ``Permit`` or raises ``Denied``.

Opening an upstream connection takes a ``Permit`` as an argument, so a missing check does not type-check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from svc.errors import SvcError
from svc.identity import Matcher, SpiffeID, TrustDomain

__all__ = ["AccessRequest", "AllowListed", "AllowTrustDomain", "Denied", "DenyAll", "Permit", "Policy"]


class Denied(SvcError):
    """{identity} is not permitted here: {rule}"""

    reason = "policy_deny"
    http_status = 403
    hint = "allow this identity in the policy of the proxy that answers"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """
    A request to authorize.

    Args:
        identity: the verified identity of the client.
        method: the HTTP method, or an empty string where the protocol has none.
        path: the normalized path, or an empty string.
    """

    identity: SpiffeID
    method: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Permit:
    """The evidence that a request was authorized, with the name of the rule that permits it."""

    identity: SpiffeID
    rule: str


class Policy(Protocol):
    """The policy of a listener."""

    @property
    def depends_on_request(self) -> bool:
        """Whether the decision can depend on method or path; otherwise one decision is valid for a whole connection."""

    def authorize(self, request: AccessRequest) -> Permit:
        """
        Decide on a request.

        Raises:
            Denied: with the identity and the rule that denies.
        """


class AllowTrustDomain:
    """Permits the identities of one trust domain."""

    depends_on_request = False

    def __init__(self, trust_domain: TrustDomain) -> None:
        self._trust_domain = trust_domain

    def authorize(self, request: AccessRequest) -> Permit:
        if request.identity.trust_domain != self._trust_domain:
            raise Denied(identity=request.identity, rule=f"only identities of {self._trust_domain} are admitted")
        return Permit(request.identity, "default allow")


class AllowListed:
    """Permits the identities that a list of matchers covers; for others ``otherwise`` decides."""

    def __init__(self, listed: Iterable[Matcher], otherwise: Policy) -> None:
        self._listed = tuple(listed)
        self._otherwise = otherwise

    @property
    def depends_on_request(self) -> bool:
        return self._otherwise.depends_on_request

    def authorize(self, request: AccessRequest) -> Permit:
        for matcher in self._listed:
            if matcher.matches(request.identity):
                return Permit(request.identity, f"allow {matcher}")
        return self._otherwise.authorize(request)


class DenyAll:
    """Permits no identity."""

    depends_on_request = False

    def authorize(self, request: AccessRequest) -> Permit:
        raise Denied(identity=request.identity, rule="default deny")
