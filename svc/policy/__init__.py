"""
Who may do what: ``authorize(request)`` gives a ``Permit`` or raises ``Denied``.

Pure: told identity, method and path, it reads no file and no clock. Opening an upstream connection takes a ``Permit``
as an argument, so that forgetting the question does not type-check.
"""

from svc.policy.decision import AccessRequest, Denied, Permit, Policy
from svc.policy.defaults import AllowListed, AllowTrustDomain, DenyAll

__all__ = ["AccessRequest", "AllowListed", "AllowTrustDomain", "Denied", "DenyAll", "Permit", "Policy"]
