"""The two policies that need no rules."""

from __future__ import annotations

from svc.identity import TrustDomain
from svc.policy.decision import AccessRequest, Denied, Permit


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


class DenyAll:
    """Permits nobody."""

    looks_at_requests = False

    def authorize(self, request: AccessRequest) -> Permit:
        """See :class:`svc.policy.decision.Policy`."""
        raise Denied(identity=request.identity, rule="default deny")
