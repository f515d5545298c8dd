"""The grammar of SPIFFE IDs and trust domain names, octet by octet."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID, SpiffeIdMalformed, TrustDomain, TrustDomainMalformed
from svc.identity.spiffeid import MAX_SPIFFE_ID, MAX_TRUST_DOMAIN

# Written out from SPIFFE-ID 2.1 and 2.2, on purpose not taken from the code under test.
TRUST_DOMAIN_OCTETS = frozenset((string.ascii_lowercase + string.digits + ".-_").encode())
PATH_OCTETS = frozenset((string.ascii_letters + string.digits + ".-_").encode())


class TrustDomainTests(SynchronousTestCase):
    """Names of trust domains (SPIFFE-ID 2.1)."""

    def test_each_octet_is_allowed_or_refused(self) -> None:
        """Of all 256 octets exactly a-z 0-9 . - _ are accepted in a name, at any position."""
        for octet in range(256):
            for text in (chr(octet), f"a{chr(octet)}b", f"{chr(octet)}b", f"a{chr(octet)}"):
                if octet in TRUST_DOMAIN_OCTETS:
                    self.assertEqual(TrustDomain.parse(text).name, text)
                else:
                    self.assertRaises(TrustDomainMalformed, TrustDomain.parse, text)

    def test_length(self) -> None:
        """255 octets are accepted; 256 octets and none are refused."""
        self.assertEqual(len(TrustDomain.parse("a" * MAX_TRUST_DOMAIN).name), 255)
        self.assertRaises(TrustDomainMalformed, TrustDomain.parse, "a" * (MAX_TRUST_DOMAIN + 1))
        self.assertRaises(TrustDomainMalformed, TrustDomain.parse, "")

    def test_other_texts(self) -> None:
        """Scheme, port, user, path, letters beyond ASCII and other types are refused."""
        for text in ("spiffe://a", "a:80", "u@a", "a/b", "é", "a\n", b"a", None, 1):
            self.assertRaises(TrustDomainMalformed, TrustDomain.parse, text)

    def test_values_cannot_be_invalid(self) -> None:
        """The constructor is as strict as parsing."""
        self.assertRaises(TrustDomainMalformed, TrustDomain, "A")

    def test_value_semantics(self) -> None:
        """Equal names are equal, hash alike, sort and print as the name."""
        one, other = TrustDomain.parse("a.example"), TrustDomain.parse("a.example")
        self.assertEqual((one, hash(one), str(one)), (other, hash(other), "a.example"))
        self.assertLess(TrustDomain("a"), TrustDomain("b"))
        self.assertEqual(str(one.id), "spiffe://a.example")


class SpiffeIDTests(SynchronousTestCase):
    """SPIFFE IDs (SPIFFE-ID 2)."""

    def refused(self, text: object) -> str:
        return self.assertRaises(SpiffeIdMalformed, SpiffeID.parse, text).defect

    def test_parts(self) -> None:
        """A SPIFFE ID has a trust domain and a path, and its text is what was read."""
        found = SpiffeID.parse("spiffe://prod.example.org/ns/pay/sa/api")
        self.assertEqual((found.trust_domain, found.path), (TrustDomain("prod.example.org"), "/ns/pay/sa/api"))
        self.assertEqual(str(found), "spiffe://prod.example.org/ns/pay/sa/api")
        self.assertEqual(SpiffeID.parse("spiffe://a").path, "")

    def test_each_octet_in_the_path(self) -> None:
        """Of all 256 octets exactly A-Z a-z 0-9 . - _ are accepted in a path segment."""
        for octet in range(256):
            text = f"spiffe://a/x{chr(octet)}y"
            if octet in PATH_OCTETS or chr(octet) == "/":
                self.assertEqual(str(SpiffeID.parse(text)), text)
            else:
                self.assertIn("path character", self.refused(text))

    def test_each_octet_in_the_trust_domain(self) -> None:
        """Of all 256 octets exactly those of a trust domain name are accepted in the host."""
        for octet in range(256):
            text = f"spiffe://x{chr(octet)}y/z"
            if octet in TRUST_DOMAIN_OCTETS or chr(octet) == "/":
                self.assertEqual(str(SpiffeID.parse(text)), text)
            else:
                self.assertIn("trust domain", self.refused(text))

    def test_each_octet_around_the_id(self) -> None:
        """No octet before or behind an identity is ignored; a trailing slash is an empty segment."""
        for octet in range(256):
            self.refused(f"{chr(octet)}spiffe://a/b")
            if octet not in PATH_OCTETS:
                self.refused(f"spiffe://a/b{chr(octet)}")

    def test_path_segments(self) -> None:
        """Empty segments and dot segments are refused; segments of more than two dots are accepted."""
        for path in ("/", "//", "/a/", "//a", "/a//b", "/.", "/..", "/a/.", "/./a", "/a/../b"):
            self.assertIn("segment", self.refused(f"spiffe://a{path}"))
        for path in ("/...", "/.a", "/a.", "/a..b", "/-", "/_", "/..."):
            self.assertEqual(SpiffeID.parse(f"spiffe://a{path}").path, path)

    def test_other_uris(self) -> None:
        """Other schemes, spellings of the scheme, users, ports, queries, fragments and escapes are refused."""
        for text in (
            "",
            "spiffe:",
            "spiffe:/",
            "spiffe://",
            "spiffe:///a",
            "spiffe:a/b",
            "SPIFFE://a/b",
            "Spiffe://a/b",
            "http://a/b",
            "//a/b",
            "spiffe://u@a/b",
            "spiffe://a:80/b",
            "spiffe://a?/b",
            "spiffe://a/b?c",
            "spiffe://a/b#c",
            "spiffe://a/%41",
            "spiffe://[::1]/b",
            "spiffe://A/b",
            "spiffe://a/é",
            b"spiffe://a/b",
            None,
        ):
            self.refused(text)

    def test_length(self) -> None:
        """2048 octets are accepted and 2049 refused, parsed or made of parts."""
        path = "/" + "x" * (MAX_SPIFFE_ID - len("spiffe://a/"))
        self.assertEqual(len(str(SpiffeID.parse(f"spiffe://a{path}"))), 2048)
        self.assertIn("2048", self.refused(f"spiffe://a{path}x"))
        self.assertRaises(SpiffeIdMalformed, SpiffeID, TrustDomain("a"), f"{path}x")
        self.assertIn("255", self.refused("spiffe://" + "a" * 256 + "/b"))

    def test_from_parts(self) -> None:
        """The path must start with a slash and follow the same grammar."""
        self.assertEqual(str(SpiffeID(TrustDomain("a"), "/b/c")), "spiffe://a/b/c")
        self.assertEqual(str(SpiffeID(TrustDomain("a"), "")), "spiffe://a")
        for path in ("b", "/b/", "/é", "/b c", None):
            self.assertRaises(SpiffeIdMalformed, SpiffeID, TrustDomain("a"), path)

    def test_nothing_is_normalised(self) -> None:
        """Paths that differ in case are different identities."""
        self.assertNotEqual(SpiffeID.parse("spiffe://a/B"), SpiffeID.parse("spiffe://a/b"))

    def test_the_sentence_is_safe_to_print(self) -> None:
        """Control characters of a refused text are escaped in the message."""
        error = self.assertRaises(SpiffeIdMalformed, SpiffeID.parse, "spiffe://a/\x1b[2J")
        self.assertNotIn("\x1b", str(error))
        self.assertIn("\\x1b", str(error))

    @given(
        st.text(alphabet="ab9._-", min_size=1, max_size=20),
        st.lists(st.text(alphabet="aB9._-", min_size=1, max_size=8).filter(lambda s: s not in {".", ".."})),
    )
    def test_any_valid_id(self, host: str, segments: list[str]) -> None:
        """Any text of the grammar is read and printed unchanged."""
        text = f"spiffe://{host}" + "".join(f"/{segment}" for segment in segments)
        self.assertEqual(str(SpiffeID.parse(text)), text)

    @given(st.text(max_size=40) | st.text(alphabet="spiffe:/aA.%?#@ \n", max_size=30).map("spiffe://".__add__))
    def test_any_text(self, text: str) -> None:
        """Any accepted text matches the grammar, which the test states independently."""
        try:
            found = SpiffeID.parse(text)
        except SpiffeIdMalformed:
            return
        scheme, host, *segments = text.replace("://", "/", 1).split("/")
        self.assertEqual((scheme, str(found)), ("spiffe", text))
        self.assertTrue(host and set(host.encode()) <= TRUST_DOMAIN_OCTETS)
        for segment in segments:
            self.assertTrue(segment not in {"", ".", ".."} and set(segment.encode()) <= PATH_OCTETS)
