"""Name constraints of every kind, and path lengths."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import CertificateFacts, SvidInvalid, verify_svid
from svc.identity.constraints import ComparisonCounter, check_name_constraints
from svc.testing.ca import TestAuthority
from svc.testing.certificates import generate_key
from tests.refusals import assert_refused

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ROOT = TestAuthority(now=NOW)
Names = tuple[x509.GeneralName, ...]


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


def dns(text: str) -> x509.GeneralName:
    return x509.DNSName(text)


def mail(text: str) -> x509.GeneralName:
    return x509.RFC822Name(text)


def ip(text: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text))


def directory(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.GeneralName:
    return x509.DirectoryName(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]))


ORG, CN, EMAIL = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME, NameOID.EMAIL_ADDRESS
OTHER = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.99999.2"), b"\x0c\x01a")


class NameConstraintTests(SynchronousTestCase):
    """RFC 5280, section 4.2.1.10."""

    def accepts(
        self, *, names: Names = (), permitted: Names = (), excluded: Names = (), domain: str = "example.org"
    ) -> bool:
        """Whether an intermediate with these constraints may issue a leaf with these further names."""
        root = TestAuthority(domain, now=NOW, uris=())
        authority = root.intermediate(permitted=permitted, excluded=excluded, uris=())
        svid = authority.svid(names=names)
        try:
            verify_svid(svid.chain, root.bundles(), NOW)
        except SvidInvalid as error:
            self.assertEqual(error.reason, "name_constraints")
            return False
        return True

    def test_uri_host_and_domain(self) -> None:
        """Without a leading period a constraint names one host; with it all hosts below, not the domain itself."""
        for domain, constraint, inside in (
            ("example.org", "example.org", True),
            ("example.org", "EXAMPLE.org", True),
            ("a.example.org", "example.org", False),
            ("a.example.org", ".example.org", True),
            ("b.a.example.org", ".example.org", True),
            ("example.org", ".example.org", False),
            ("badexample.org", ".example.org", False),
            ("badexample.org", "example.org", False),
            ("example.org.evil", "example.org", False),
            ("single", "single", True),
        ):
            where = f"{domain} {constraint}"
            self.assertEqual(self.accepts(domain=domain, permitted=(uri(constraint),)), inside, where)
            self.assertEqual(self.accepts(domain=domain, excluded=(uri(constraint),)), not inside, where)

    def test_uri_constraints_that_are_not_hosts(self) -> None:
        """A constraint that is not a host name counts as violated, permitted or excluded."""
        for constraint in ("", ".", "spiffe://example.org", "example.org/a", "example.org:1", "..a", "*.org", "a b"):
            self.assertFalse(self.accepts(permitted=(uri(constraint),)), constraint)
            self.assertFalse(self.accepts(excluded=(uri(constraint),)), constraint)

    def test_uri_hosts_that_are_not_domain_names(self) -> None:
        """A trust domain that is an IP address or has empty labels is refused where URIs are constrained."""
        for domain in ("10.0.0.1", "example.org.", "a..example.org", ".example.org"):
            self.assertFalse(self.accepts(domain=domain, permitted=(uri(".org"),)), domain)
            self.assertFalse(self.accepts(domain=domain, excluded=(uri("other.example"),)), domain)
            self.assertTrue(self.accepts(domain=domain, permitted=(dns("other.example"),)), domain)

    def test_several_subtrees(self) -> None:
        """A name in any permitted subtree is accepted unless it is in an excluded one."""
        both = (uri("other.example"), uri("example.org"))
        self.assertTrue(self.accepts(permitted=both))
        self.assertFalse(self.accepts(permitted=both, excluded=(uri("example.org"),)))
        self.assertTrue(self.accepts(permitted=both, excluded=(uri(".example.org"),)))

    def test_dns(self) -> None:
        """Subdomains are accepted too; a leading period requires at least one more label."""
        for name, constraint, inside in (
            ("example.org", "example.org", True),
            ("a.example.org", "example.org", True),
            ("A.Example.ORG", "example.org", True),
            ("badexample.org", "example.org", False),
            ("example.org", ".example.org", False),
            ("a.example.org", ".example.org", True),
            ("a.example.org", "", True),
            ("*.example.org", "example.org", True),
            ("*.example.org", ".example.org", True),
        ):
            where = f"{name} {constraint}"
            self.assertEqual(self.accepts(names=(dns(name),), permitted=(dns(constraint),)), inside, where)
            self.assertEqual(self.accepts(names=(dns(name),), excluded=(dns(constraint),)), not inside, where)

    def test_wildcards(self) -> None:
        """*.example.org is refused where a.example.org is excluded, and not permitted where only that one is."""
        self.assertFalse(self.accepts(names=(dns("*.example.org"),), excluded=(dns("a.example.org"),)))
        self.assertFalse(self.accepts(names=(dns("*.example.org"),), permitted=(dns("a.example.org"),)))

    def test_every_name_is_checked(self) -> None:
        """One name that is not permitted is enough to refuse the leaf."""
        names = (dns("a.example.org"), dns("a.evil.example"))
        self.assertFalse(self.accepts(names=names, permitted=(dns("example.org"),)))
        self.assertTrue(self.accepts(names=names[:1], permitted=(dns("example.org"),)))

    def test_ip_addresses(self) -> None:
        """Addresses are compared by network and IP version."""
        for name, constraint, inside in (
            ("10.1.2.3", "10.0.0.0/8", True),
            ("11.1.2.3", "10.0.0.0/8", False),
            ("fd00::1", "fd00::/8", True),
            ("fe00::1", "fd00::/8", False),
            ("fd00::1", "10.0.0.0/8", False),
            ("10.1.2.3", "::/0", False),
        ):
            where = f"{name} {constraint}"
            self.assertEqual(self.accepts(names=(ip(name),), permitted=(ip(constraint),)), inside, where)
            self.assertEqual(self.accepts(names=(ip(name),), excluded=(ip(constraint),)), not inside, where)

    def test_mail_addresses(self) -> None:
        """A constraint is a mailbox, a host, or with a leading period the hosts of a domain."""
        for name, constraint, inside in (
            ("a@example.org", "a@example.org", True),
            ("a@EXAMPLE.org", "a@example.org", True),
            ("A@example.org", "a@example.org", False),
            ("a@example.org", "example.org", True),
            ("a@x.example.org", "example.org", False),
            ("a@x.example.org", ".example.org", True),
            ("a@example.org", ".example.org", False),
        ):
            where = f"{name} {constraint}"
            self.assertEqual(self.accepts(names=(mail(name),), permitted=(mail(constraint),)), inside, where)
            self.assertEqual(self.accepts(names=(mail(name),), excluded=(mail(constraint),)), not inside, where)

    def test_directory_names(self) -> None:
        """The constraint is a prefix of the name, ignoring case and spaces; the subject is checked too."""
        name = directory((ORG, "Example  Org"), (CN, "a"))
        for constraint, inside in (
            (directory((ORG, "example org")), True),
            (directory((ORG, "example org"), (CN, "A ")), True),
            (directory((ORG, "other")), False),
            (directory((CN, "a")), False),
            (directory((ORG, "example org"), (CN, "a"), (CN, "b")), False),
        ):
            self.assertEqual(self.accepts(names=(name,), excluded=(constraint,)), not inside)
        self.assertFalse(
            self.accepts(permitted=(directory((ORG, "example org")),)), "the subject CN=workload is outside"
        )
        self.assertTrue(self.accepts(permitted=(directory((CN, "WORKLOAD")),)))
        self.assertFalse(self.accepts(excluded=(directory((CN, "workload")),)))

    def test_mail_addresses_in_the_subject(self) -> None:
        """Constraints for mail addresses apply to a mail address in the subject."""
        key = generate_key("ECDSA-P256")
        for address, constraint, allowed in (
            ("a@evil.example", mail("evil.example"), True),
            ("a@evil.example", mail("example.org"), False),
            ("é@Ü", mail("example.org"), False),
            ("é@Ü", dns("example.org"), True),
        ):
            subject = x509.Name([x509.NameAttribute(EMAIL, address)])
            builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, NOW, NOW)
            leaf = CertificateFacts.read(builder.sign(key, hashes.SHA256()))
            issuer = CertificateFacts.read(ROOT.intermediate(permitted=(constraint,)).certificate)
            if allowed:
                self.assertIsNone(check_name_constraints((leaf, issuer), ComparisonCounter()))
            else:
                assert_refused(self, "name_constraints", check_name_constraints, (leaf, issuer), ComparisonCounter())

    def test_uris_that_are_not_spiffe_ids(self) -> None:
        """A URI that is not a SPIFFE ID is never permitted and always excluded."""
        leaf = CertificateFacts.read(ROOT.svid(uris=("https://example.org/a",)).leaf)
        for authority in (
            ROOT.intermediate(permitted=(uri("example.org"),)),
            ROOT.intermediate(excluded=(uri("other.example"),)),
        ):
            issuer = CertificateFacts.read(authority.certificate)
            assert_refused(self, "name_constraints", check_name_constraints, (leaf, issuer), ComparisonCounter())

    def test_kinds_that_are_not_evaluated(self) -> None:
        """A leaf with a name of a constrained kind that is not evaluated is refused, another leaf is not."""
        for kind in (OTHER, x509.RegisteredID(x509.ObjectIdentifier("1.2.3"))):
            self.assertFalse(self.accepts(names=(kind,), permitted=(kind,)))
            self.assertFalse(self.accepts(names=(kind,), excluded=(kind,)))
            self.assertTrue(self.accepts(permitted=(kind,)))
            self.assertTrue(self.accepts(names=(kind,), permitted=(dns("a"),)))

    def test_constraints_of_absent_kinds(self) -> None:
        """Constraints of a kind that no certificate has are ignored."""
        self.assertTrue(self.accepts(permitted=(dns("other.example"), ip("10.0.0.0/8"), mail("other.example"))))

    def test_constraints_of_every_authority(self) -> None:
        """The constraints of root and intermediate apply, also to the names of intermediates."""
        root = TestAuthority(now=NOW, permitted=(uri("other.example"),), uris=())
        assert_refused(self, "name_constraints", verify_svid, root.svid().chain, root.bundles(), NOW)
        root = TestAuthority(now=NOW, excluded=(directory((CN, "evil")),))
        evil = root.intermediate("evil")
        assert_refused(self, "name_constraints", verify_svid, evil.svid().chain, root.bundles(), NOW)
        self.assertEqual(len(verify_svid(root.intermediate("good").svid().chain, root.bundles(), NOW).chain), 3)

    def test_self_issued_intermediates_are_exempt(self) -> None:
        """An intermediate with its issuer's name may have names that its leaves must not have (RFC 5280, 6.1.3)."""
        root = TestAuthority(now=NOW, permitted=(directory((CN, "workload")), uri("example.org")))
        same = root.intermediate(root.certificate.subject.rfc4514_string().removeprefix("CN="))
        self.assertEqual(len(verify_svid(same.svid().chain, root.bundles(), NOW).chain), 3)
        other = root.intermediate("other")
        assert_refused(self, "name_constraints", verify_svid, other.svid().chain, root.bundles(), NOW)

    @given(
        st.lists(st.sampled_from(["a", "b", "org"]), min_size=1, max_size=3).map(".".join),
        st.lists(st.sampled_from(["a", "b", "org"]), min_size=1, max_size=3).map(".".join),
        st.booleans(),
    )
    def test_any_uri(self, domain: str, constraint: str, below: bool) -> None:
        """The comparison gives the same result as one over lists of labels."""
        name, limit = domain.split("."), constraint.split(".")
        inside = len(name) > len(limit) and name[-len(limit) :] == limit if below else name == limit
        self.assertEqual(self.accepts(domain=domain, permitted=(uri("." * below + constraint),)), inside)


class PathLengthTests(SynchronousTestCase):
    """RFC 5280, section 4.2.1.9."""

    def accepts(self, *lengths: int | None, self_issued: bool = False) -> bool:
        """Whether a chain is accepted whose authorities have these path lengths, root first."""
        root = authority = TestAuthority(now=NOW, path_length=lengths[0])
        for position, length in enumerate(lengths[1:]):
            name = "example.org root" if self_issued else f"level {position}"
            authority = authority.intermediate(name, path_length=length)
        try:
            verify_svid(authority.svid().chain, root.bundles(), NOW)
        except SvidInvalid as error:
            self.assertEqual(error.reason, "path_length")
            return False
        return True

    def test_limits(self) -> None:
        """The allowed number of signing certificates is accepted, one more is not, for the limit of any authority."""
        for lengths, allowed in (
            ((0,), True),
            ((0, None), False),
            ((1, None), True),
            ((1, 0), True),
            ((1, None, None), False),
            ((None, 0), True),
            ((None, 0, None), False),
            ((2, 1, 0), True),
            ((5, 0, 5), False),
        ):
            self.assertEqual(self.accepts(*lengths), allowed, lengths)

    def test_self_issued_certificates_do_not_count(self) -> None:
        """A self-issued certificate of an authority is not counted."""
        self.assertTrue(self.accepts(0, None, self_issued=True))
