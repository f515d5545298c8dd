"""The policies that need no rules."""

from __future__ import annotations

from collections.abc import Iterable

from svc.identity import Matcher, TrustDomain
from svc.policy.decision import AccessRequest, Denied, Permit, Policy


class AllowTrustDomain:
    """
    Permits every verified identity of one trust domain and nobody else.

    Args:
        trust_domain: the trust domain.
    """

    looks_at_requests = False

    def __init__(self, trust_domain: TrustDomain) -> None:
        self._trust_domain = trust_domain

    def authorize(self, request: AccessRequest) -> Permit:
        """See :class:`svc.policy.decision.Policy`."""
        if request.identity.trust_domain != self._trust_domain:
            raise Denied(identity=request.identity, rule=f"only identities of {self._trust_domain} are admitted")
        return Permit(request.identity, "default allow")


class AllowListed:
    """
    Permits the identities of a list, of whatever trust domain, and leaves all others to another policy.

    Args:
        listed: the matchers.
        otherwise: decides on who is not listed.
    """

    def __init__(self, listed: Iterable[Matcher], otherwise: Policy) -> None:
        self._listed = tuple(listed)
        self._otherwise = otherwise

    @property
    def looks_at_requests(self) -> bool:
        """See :class:`svc.policy.decision.Policy`."""
        return self._otherwise.looks_at_requests

    def authorize(self, request: AccessRequest) -> Permit:
        """See :class:`svc.policy.decision.Policy`."""
        for matcher in self._listed:
            if matcher.matches(request.identity):
                return Permit(request.identity, f"allow {matcher}")
        return self._otherwise.authorize(request)


class DenyAll:
    """Permits nobody."""

    looks_at_requests = False

    def authorize(self, request: AccessRequest) -> Permit:
        """See :class:`svc.policy.decision.Policy`."""
        raise Denied(identity=request.identity, rule="default deny")
