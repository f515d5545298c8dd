"""The built-in policies."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID, TrustDomain, parse_matcher
from svc.policy import AccessRequest, AllowListed, AllowTrustDomain, Denied, DenyAll, Permit


class PolicyTests(SynchronousTestCase):
    """Policies of the configuration."""

    own = SpiffeID.parse("spiffe://prod.example/ns/web/sa/fe")
    foreign = SpiffeID.parse("spiffe://bank.example/ns/web/sa/fe")

    def test_own_domain_is_permitted(self) -> None:
        """An identity of the trust domain gets a permit that names it and the rule."""
        policy = AllowTrustDomain(TrustDomain.parse("prod.example"))
        permit = policy.authorize(AccessRequest(self.own, "GET", "/"))
        self.assertEqual(permit, Permit(self.own, "default allow"))

    def test_foreign_domain_is_denied(self) -> None:
        """A federated identity is denied although its certificate verifies."""
        policy = AllowTrustDomain(TrustDomain.parse("prod.example"))
        denied = self.assertRaises(Denied, policy.authorize, AccessRequest(self.foreign))
        self.assertEqual(denied.reason, "policy_deny")
        self.assertIn("spiffe://bank.example/ns/web/sa/fe", str(denied))
        self.assertEqual(denied.http_status, 403)

    def test_listed(self) -> None:
        """A listed identity is permitted by its matcher; the other policy decides on the others."""
        listed = [parse_matcher("spiffe://bank.example/ns/web/*"), parse_matcher("spiffe://other.example/a")]
        for otherwise in (DenyAll(), AllowTrustDomain(TrustDomain.parse("prod.example"))):
            policy = AllowListed(listed, otherwise)
            self.assertFalse(policy.depends_on_request)
            permit = policy.authorize(AccessRequest(self.foreign, "GET", "/"))
            self.assertEqual(permit, Permit(self.foreign, "allow spiffe://bank.example/ns/web/*"))
            for path in ("spiffe://bank.example/ns/pay/sa/api", "spiffe://other.example/b"):
                self.assertRaises(Denied, policy.authorize, AccessRequest(SpiffeID.parse(path)))
        self.assertEqual(policy.authorize(AccessRequest(self.own)).rule, "default allow")
        self.assertRaises(Denied, AllowListed(listed, DenyAll()).authorize, AccessRequest(self.own))

    def test_deny_all(self) -> None:
        """Every identity is denied."""
        self.assertRaises(Denied, DenyAll().authorize, AccessRequest(self.own, "GET", "/"))
