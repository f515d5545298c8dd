"""Attributes of workloads, from templates of SPIFFE IDs and from a table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID, TrustDomain
from svc.policy.attributes import (
    AttributeMalformed,
    Attributes,
    AttributeSource,
    IdTemplate,
    SecurityLevel,
    parse_compartment,
)

PROD = TrustDomain.parse("prod.example")
MLS = "spiffe://prod.example/c/{country}/{sensitivity}/{compartment}/ns/{namespace}/sa/{serviceAccount}"


class SecurityLevelTests(SynchronousTestCase):
    """A country and a sensitivity."""

    def test_dominates(self) -> None:
        """Sensitivities ascend from U to TS; countries are not compared."""
        ascending = [SecurityLevel.parse(f"DE:{name}") for name in ("U", "C", "S", "TS")]
        for low, lower in enumerate(ascending):
            for high, higher in enumerate(ascending):
                self.assertEqual(high >= low, higher.dominates(lower))
        self.assertFalse(SecurityLevel.parse("FR:TS").dominates(ascending[0]))

    def test_spelling(self) -> None:
        """Either case is read, upper case is written; anything else is refused."""
        self.assertEqual("DE:TS", str(SecurityLevel.parse("de:ts")))
        for text in ("", "DE", "DE:", ":S", "DE:X", "D:S", "DEUT:S", "DE:S:S", "D1:S", "DE: S"):
            self.assertRaises(AttributeMalformed, SecurityLevel.parse, text)

    def test_compartment(self) -> None:
        """A compartment has a short name."""
        self.assertEqual("alpha-1", parse_compartment("alpha-1"))
        for text in ("", "a b", "a/b", "a" * 64):
            self.assertRaises(AttributeMalformed, parse_compartment, text)


class TemplateTests(SynchronousTestCase):
    """Reading attributes out of a SPIFFE ID."""

    def test_read(self) -> None:
        """Each placeholder is one segment; an ID that does not fit has no attributes of the template."""
        template = IdTemplate.parse(MLS)
        fitting = SpiffeID.parse("spiffe://prod.example/c/de/S/alpha/ns/shop/sa/web")
        expected = Attributes("shop", "web", SecurityLevel.parse("DE:S"), "alpha")
        self.assertEqual(expected, template.read(fitting))
        for path in ("/c/de/S/alpha/ns/shop/sa", "/x/de/S/alpha/ns/shop/sa/web", "/c/de/X/alpha/ns/shop/sa/web"):
            self.assertIsNone(template.read(SpiffeID.parse(f"spiffe://prod.example{path}")))
        self.assertIsNone(template.read(SpiffeID.parse("spiffe://other.example/c/de/S/alpha/ns/shop/sa/web")))
        self.assertEqual(MLS, str(template))

    def test_malformed(self) -> None:
        """A template has a trust domain, known placeholders once each, and whole levels."""
        for text in (
            "spiffe://prod.example/ns/shop",
            "spiffe://prod.example/ns/{other}",
            "spiffe://prod.example/{namespace}/{namespace}",
            "spiffe://prod.example/c/{country}",
            "spiffe://prod.example/ns/x{namespace}",
            "spiffe://{namespace}/ns",
            "/ns/{namespace}",
            "",
        ):
            self.assertRaises(AttributeMalformed, IdTemplate.parse, text)

    @given(st.text(max_size=60))
    def test_any_text(self, text: str) -> None:
        """Any text is a template or refused."""
        try:
            template = IdTemplate.parse("spiffe://prod.example/" + text)
        except AttributeMalformed:
            return
        self.assertEqual("spiffe://prod.example/" + text, str(template))


class SourceTests(SynchronousTestCase):
    """Where attributes come from."""

    def test_default_template(self) -> None:
        """Namespace and service account come from IDs of Kubernetes, of the own trust domain alone."""
        source = AttributeSource.of(PROD)
        self.assertEqual(
            Attributes("shop", "web"), source.attributes(SpiffeID.parse("spiffe://prod.example/ns/shop/sa/web"))
        )
        for text in ("spiffe://other.example/ns/shop/sa/web", "spiffe://prod.example/shop"):
            self.assertEqual(Attributes(), source.attributes(SpiffeID.parse(text)))

    def test_given(self) -> None:
        """What the table says of an ID comes before its template, attribute by attribute."""
        web = SpiffeID.parse("spiffe://prod.example/ns/shop/sa/web")
        given_attributes = Attributes(level=SecurityLevel.parse("DE:S"), compartment="alpha")
        source = AttributeSource.of(PROD, given={web: given_attributes})
        self.assertEqual(Attributes("shop", "web", SecurityLevel.parse("DE:S"), "alpha"), source.attributes(web))
        renamed = AttributeSource.of(PROD, given={web: Attributes("n", "s")})
        self.assertEqual(Attributes("n", "s"), renamed.attributes(web))
