"""Policies and attributes of a configuration together."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID
from svc.policy import engine
from svc.policy.attributes import Attributes, AttributeSource
from svc.policy.engine import PolicySet
from svc.policy.rules import Action, AuthorizationPolicy, RequestFacts, Rule, Source, Values
from svc.policyfiles.files import PolicyFiles
from svc.policyfiles.settings import Policies, PolicySettings, policies_of

CLIENT = SpiffeID.parse("spiffe://x.org/ns/shop/sa/web")
OTHER = SpiffeID.parse("spiffe://x.org/ns/pay/sa/api")


class ConnectionTests(SynchronousTestCase):
    """Policies are narrowed once for each kind of connection."""

    def test_each_fact(self) -> None:
        """Connections that differ in one fact are of different kinds; those that do not share what is left."""
        policies = Policies.of(AuthorizationPolicy("p", Action.ALLOW, (Rule("all"),)))
        kinds = [
            policies.connection("web", 1, CLIENT, CLIENT),
            policies.connection("api", 1, CLIENT, CLIENT),
            policies.connection("web", 2, CLIENT, CLIENT),
            policies.connection("web", 1, OTHER, CLIENT),
            policies.connection("web", 1, CLIENT, OTHER),
            policies.connection("web", 1, CLIENT, CLIENT, post_quantum=True),
            policies.connection("web", 1, CLIENT, CLIENT, sni="a"),
            policies.connection("web", 1, CLIENT, CLIENT, alpn="a"),
        ]
        self.assertEqual(len(kinds), len({id(each) for each in kinds}))
        self.assertIs(kinds[0], policies.connection("web", 1, SpiffeID.parse(str(CLIENT)), CLIENT))

    def test_attributes(self) -> None:
        """Rules see the attributes of the client."""
        rule = Rule("pay", (Source(namespaces=Values(frozenset({"pay"}))),))
        policy = AuthorizationPolicy("p", Action.ALLOW, (rule,))
        source = AttributeSource(given={OTHER: Attributes("pay")})
        policies = Policies(PolicySet([policy]), source, PolicyFiles((policy,), (), (), ""))
        decided = [policies.connection("web", 1, each, CLIENT).decide(RequestFacts()) for each in (CLIENT, OTHER)]
        self.assertEqual([False, True], [each.allowed for each in decided])

    def test_namespace_alone(self) -> None:
        """A configuration that allows nobody leaves the decision to the policies of a namespace."""
        files = PolicyFiles((AuthorizationPolicy("p", Action.ALLOW, (Rule("all"),), "shop", rank=2),), (), (), "")
        for section, allowed in (
            (PolicySettings(), True),
            (PolicySettings(allow=("spiffe://y.org/*",)), False),
            (PolicySettings(allow=(str(CLIENT),)), True),
        ):
            connection = policies_of(section, "x.org", files).connection("web", 1, CLIENT, CLIENT)
            self.assertIs(allowed, connection.decide(RequestFacts()).allowed, section)

    def test_bounded(self) -> None:
        """The oldest kind is dropped at the limit, and made again when it is needed."""
        policies = Policies.of(AuthorizationPolicy("p", Action.ALLOW, (Rule("all"),)))
        first = policies.connection("web", 0, CLIENT, CLIENT)
        for port in range(1, engine.CACHE_SIZE):
            policies.connection("web", port, CLIENT, CLIENT)
        self.assertIs(first, policies.connection("web", 0, CLIENT, CLIENT))
        policies.connection("web", engine.CACHE_SIZE, CLIENT, CLIENT)
        self.assertIsNot(first, policies.connection("web", 0, CLIENT, CLIENT))
        self.assertEqual(engine.CACHE_SIZE, len(policies._connections))
