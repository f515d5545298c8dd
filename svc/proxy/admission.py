"""
Who may send requests to inbound listeners, as the configuration has it.

Owns the way from the section ``policy`` to the policy that decides.
"""

from __future__ import annotations

from svc.identity import TrustDomain
from svc.identity.matchers import parse_matcher
from svc.policy import AllowListed, AllowTrustDomain, DenyAll, Policy
from svc.proxy.config import ProxySettings


def policy_of(settings: ProxySettings) -> Policy:
    """
    Make the policy of a configuration.

    Args:
        settings: the whole configuration.

    Returns:
        The policy of all its inbound listeners.
    """
    section = settings.policy
    default: Policy = DenyAll()
    if section.default == "allow":
        default = AllowTrustDomain(TrustDomain.parse(settings.trustDomain))
    return AllowListed([parse_matcher(each) for each in section.allow], default) if section.allow else default
