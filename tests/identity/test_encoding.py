"""Certificates that cannot be decoded, or only at high cost, are refused as malformed without a warning."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import CertificateFacts, KeyNotAllowed, SvidInvalid, SvidMalformed, key_algorithm, verify_svid
from svc.identity.algorithms import MAX_RSA_EXPONENT_BITS
from svc.identity.certificate import load_presented
from svc.identity.encoding import (
    MAX_EXTENSION_ELEMENTS,
    MAX_NAME,
    MAX_NAME_ATTRIBUTES,
    MAX_SIGNED_PART,
    CertificateEncoding,
)
from svc.testing.ca import TestAuthority
from svc.testing.certificates import der, rebuilt

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ROOT = TestAuthority(now=NOW)
LEAF = ROOT.svid(subject="workload").leaf
BUNDLES = ROOT.bundles()

COMMON_NAME, COUNTRY, ORGANIZATION = (bytes.fromhex(each) for each in ("550403", "550406", "55040a"))
JURISDICTION = bytes.fromhex("2b0601040182373c020103")
UNIQUE_IDENTIFIER = bytes.fromhex("55042d")
UTF8, UNIVERSAL, BMP = 0x0C, 0x1C, 0x1E
SUBJECT, ISSUER, SERIAL, VERSION, VALIDITY, KEY, EXTENSIONS = 5, 3, 1, 0, 4, 6, 7
ALTERNATIVE_NAME = bytes.fromhex("0603551d11")


def attribute(oid: bytes, tag: int, value: bytes) -> bytes:
    """An AttributeTypeAndValue."""
    return der(0x30, der(0x06, oid) + der(tag, value))


def name(*rdns: bytes) -> bytes:
    """A name of RDNs, each given as its attributes."""
    return der(0x30, b"".join(der(0x31, rdn) for rdn in rdns))


def extension(oid: bytes, value: bytes) -> bytes:
    """An extension that is not critical, of an encoded OID."""
    return der(0x30, oid + der(0x04, value))


def extensions(*more: bytes) -> bytes:
    """Those of the leaf with others behind them."""
    own = CertificateEncoding.read(LEAF).extensions
    return der(0xA3, der(0x30, own[2 if own[1] < 0x80 else 2 + (own[1] & 0x7F) :] + b"".join(more)))


def refusal(data: bytes) -> SvidInvalid:
    """The error for a certificate as a leaf; warnings and other exceptions fail the test."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            verify_svid((load_presented(data),), BUNDLES, NOW)
        except SvidInvalid as error:
            str(error)
            if caught:
                raise AssertionError(f"warned: {caught[0].message}") from error
            return error
    raise AssertionError("accepted")


class NameTests(SynchronousTestCase):
    """Subjects and issuers."""

    def refused(self, field: bytes) -> str:
        defects = set()
        for position in (SUBJECT, ISSUER):
            error = refusal(rebuilt(LEAF, {position: field}))
            self.assertIsInstance(error, SvidMalformed)
            defects.add(str(error).replace("issuer", "subject"))
        [defect] = defects
        return defect

    def read(self, field: bytes) -> None:
        """Read a certificate with this subject."""
        CertificateFacts.read(load_presented(rebuilt(LEAF, {SUBJECT: field})))

    def test_types_that_are_not_text(self) -> None:
        """A BIT STRING, or any other type that is not text, is malformed in any attribute."""
        for tag in (0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0A, 0x11, 0x17, 0x18, 0x30, 0x80, 0xA0):
            for oid in (COMMON_NAME, ORGANIZATION, b"\x2a\x03"):
                data = rebuilt(LEAF, {SUBJECT: name(attribute(oid, tag, b"\x00ab"))})
                try:
                    self.assertIsInstance(refusal(data), SvidInvalid)
                except AssertionError as error:
                    self.fail(f"tag {tag:#x}: {error}")
        self.refused(name(attribute(ORGANIZATION, 0x03, b"\x00ab")))
        self.read(name(attribute(UNIQUE_IDENTIFIER, 0x03, b"\x00ab")))

    def test_octets(self) -> None:
        """A name of the maximum size is read, one octet more is refused."""
        for octets, fits in ((MAX_NAME, True), (MAX_NAME + 1, False)):
            empty = len(name(attribute(ORGANIZATION, UTF8, b"x" * 500)))
            field = name(attribute(ORGANIZATION, UTF8, b"x" * (500 + octets - empty)))
            self.assertEqual(len(field), octets)
            if fits:
                self.read(field)
            else:
                self.assertIn(f"has {octets} octets, at most {MAX_NAME}", self.refused(field))

    def test_attributes(self) -> None:
        """The maximum number of attributes is read, in RDNs of any size, one more is refused."""
        many = [attribute(ORGANIZATION, UTF8, bytes((65 + number,))) for number in range(MAX_NAME_ATTRIBUTES + 1)]
        for rdns in (many, [b"".join(many)]):
            self.assertIn(f"more than {MAX_NAME_ATTRIBUTES} attributes", self.refused(name(*rdns)))
        self.read(name(*many[1:]))
        self.read(name(b"".join(many[1:])))

    def test_lengths_of_attributes(self) -> None:
        """The limits of the standard on the length of attributes are enforced in characters, in any encoding."""
        wide = "\u0100"
        for oid, fewest, most in ((COMMON_NAME, 1, 64), (COUNTRY, 2, 2), (JURISDICTION, 2, 2)):
            for size in {0, fewest - 1, fewest, most, most + 1, 200}:
                for tag, value in (
                    (UTF8, b"x" * size),
                    (BMP, ("x" * size).encode("utf-16-be")),
                    (UNIVERSAL, ("x" * size).encode("utf-32-be")),
                ):
                    field = name(attribute(oid, tag, value))
                    if fewest <= size <= most:
                        self.read(field)
                    else:
                        self.assertIn(f"{size} characters, expected {fewest} to {most}", self.refused(field))
        self.read(name(attribute(COMMON_NAME, UTF8, (wide * 64).encode())))
        self.refused(name(attribute(COMMON_NAME, UTF8, (wide * 65).encode())))

    def test_names_in_extensions(self) -> None:
        """In directory names of extensions too, a BIT STRING and an attribute that is too long are malformed."""
        for invalid in (attribute(ORGANIZATION, 0x03, b"\x00ab"), attribute(COMMON_NAME, UTF8, b"x" * 65)):
            directory = der(0xA4, name(invalid))
            for oid, value in (
                ("0603551d12", der(0x30, directory)),
                ("0603551d1e", der(0x30, der(0xA0, der(0x30, directory)))),
                ("0603551d1f", der(0x30, der(0x30, der(0xA0, der(0xA0, directory))))),
                ("06082b06010505070101", der(0x30, der(0x30, bytes.fromhex("06082b06010505073001") + directory))),
            ):
                error = refusal(rebuilt(LEAF, {EXTENSIONS: extensions(extension(bytes.fromhex(oid), value))}))
                self.assertIsInstance(error, SvidMalformed, oid)

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from([COMMON_NAME, COUNTRY, ORGANIZATION, UNIQUE_IDENTIFIER, JURISDICTION, b"\x2a\x03"]),
                st.integers(0, 255),
                st.one_of(st.binary(max_size=6), st.sampled_from([b"x" * 40, b"x" * 65, b"x" * 300])),
            ),
            max_size=4,
        ),
        st.sampled_from([SUBJECT, ISSUER, EXTENSIONS]),
    )
    def test_any_name(self, attributes: list[tuple[bytes, int, bytes]], position: int) -> None:
        """A name of any types, values and attributes is read, or refused with a typed error and without a warning."""
        field = name(*(attribute(*each) for each in attributes))
        if position == EXTENSIONS:
            field = extensions(extension(bytes.fromhex("0603551d12"), der(0x30, der(0xA4, field))))
        self.assertIsInstance(refusal(rebuilt(LEAF, {position: field})), SvidInvalid)


class CertificateTests(SynchronousTestCase):
    """Serial number, version, dates, extensions, key and size."""

    def test_serial_numbers(self) -> None:
        """A serial number that is negative or zero is malformed; the library would only issue a warning."""
        for serial in (b"\x00", b"\x80", b"\xff\x01", b"\x00" * 20, b""):
            self.assertIsInstance(refusal(rebuilt(LEAF, {SERIAL: der(0x02, serial)})), SvidMalformed, serial)

    def test_serial_number_of_a_root(self) -> None:
        """The serial number of a root is not checked: a root is trusted for its key."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = x509.load_der_x509_certificate(rebuilt(ROOT.certificate, {SERIAL: der(0x02, b"\x00")}))
        bundles = type(BUNDLES).of(type(ROOT.bundle()).from_certificates(ROOT.trust_domain, [root]))
        self.assertEqual(verify_svid(ROOT.svid().chain, bundles, NOW).anchor, root)

    def test_unused_bits_of_a_signature(self) -> None:
        """A number of unused bits is refused: the library would pass over it."""
        whole = bytearray(LEAF.public_bytes(Encoding.DER))
        at = len(whole) - len(LEAF.signature) - 1
        self.assertEqual(0, whole[at])
        for bits in (1, 7, 8, 255):
            whole[at] = bits
            self.assertIsInstance(refusal(bytes(whole)), SvidMalformed, bits)

    def test_serial_number_of_the_issuer(self) -> None:
        """A serial number of the issuer that is not positive is malformed; the library would only issue a warning."""
        whole = LEAF.public_bytes(Encoding.DER)
        identifier = LEAF.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        assert identifier is not None
        old = der(0x80, identifier)
        self.assertEqual(1, whole.count(old))
        changed = der(0x82, b"\x80" + identifier[1:])
        self.assertIsInstance(refusal(whole.replace(old, changed)), SvidMalformed)

    def test_versions(self) -> None:
        """Undefined versions are malformed."""
        for version in (b"\x00", b"\x01", b"\x03", b"\x7f", b"\x80", b"\x00\xff" * 9, b""):
            self.assertIsInstance(
                refusal(rebuilt(LEAF, {VERSION: der(0xA0, der(0x02, version))})), SvidInvalid, version
            )

    def test_dates(self) -> None:
        """Dates that do not exist or have a wrong format are malformed."""
        good = der(0x18, b"20200101000000Z")
        for tag, text in (
            (0x18, b"00000101000000Z"),
            (0x18, b"99991231235960Z"),
            (0x18, b"20260231000000Z"),
            (0x18, b"20260101000000+0100"),
            (0x18, b"2026"),
            (0x17, b"261301000000Z"),
            (0x17, b"2601010000Z"),
            (0x17, b""),
            (0x0C, b"20260101000000Z"),
        ):
            for dates in (der(tag, text) + good, good + der(tag, text)):
                error = refusal(rebuilt(LEAF, {VALIDITY: der(0x30, dates)}))
                self.assertIsInstance(error, SvidInvalid, text)

    def test_year_zero(self) -> None:
        """A date that the library cannot represent is malformed and raises no other error."""
        now = datetime(2060, 1, 2, tzinfo=UTC)
        authority = TestAuthority("example.org", now=now)
        data = authority.svid("/a").leaf.public_bytes(Encoding.DER)
        self.assertIn(b"2060", data)
        impossible = load_presented(data.replace(b"2060", b"0000"))
        error = self.assertRaises(SvidMalformed, verify_svid, (impossible,), authority.bundles(), now)
        self.assertIn("no calendar", str(error))

    def test_duplicate_extensions(self) -> None:
        """A repeated extension is malformed."""
        twice = extension(ALTERNATIVE_NAME, der(0x30, der(0x86, b"spiffe://example.org/a")))
        self.assertIsInstance(refusal(rebuilt(LEAF, {EXTENSIONS: extensions(twice)})), SvidMalformed)

    def test_octets(self) -> None:
        """A certificate of the maximum size is read, one octet more is refused."""
        for octets in (MAX_SIGNED_PART, MAX_SIGNED_PART + 1):
            filler = octets
            while True:
                field = extensions(extension(bytes.fromhex("06022a03"), b"\xff" * filler))
                certificate = load_presented(rebuilt(LEAF, {EXTENSIONS: field}))
                size = len(certificate.tbs_certificate_bytes)
                if size == octets:
                    break
                filler -= size - octets
            if octets == MAX_SIGNED_PART:
                CertificateFacts.read(certificate)
            else:
                error = self.assertRaises(SvidMalformed, CertificateFacts.read, certificate)
                self.assertIn(f"{octets} octets without its signature, at most {MAX_SIGNED_PART}", str(error))

    def test_elements_of_extensions(self) -> None:
        """The maximum number of elements in extensions is read, one more is refused."""

        def read(names: int) -> None:
            svid = ROOT.svid(names=tuple(x509.DNSName(f"{number}.example.org") for number in range(names)))
            CertificateFacts.read(svid.leaf)

        fits = next(number for number in range(600, 0, -1) if not self.failure_of(lambda: read(number)))  # noqa: B023
        self.assertGreater(fits, MAX_EXTENSION_ELEMENTS - 80)
        error = self.assertRaises(SvidMalformed, read, fits + 1)
        self.assertIn(f"more than {MAX_EXTENSION_ELEMENTS} DER elements", str(error))

    def failure_of(self, attempt: object) -> SvidMalformed | None:
        try:
            attempt()  # type: ignore[operator]
        except SvidMalformed as error:
            return error
        return None

    def test_exponents_of_rsa(self) -> None:
        """The longest public exponent of an RSA key is accepted, one bit more is refused."""
        modulus = rsa.generate_private_key(65537, 2048).public_key().public_numbers().n
        most = MAX_RSA_EXPONENT_BITS
        for bits, allowed in ((17, True), (most, True), (most + 1, False), (2040, False)):
            key = rsa.RSAPublicNumbers((1 << (bits - 1)) | 1, modulus).public_key()
            if allowed:
                self.assertEqual(key_algorithm(key).name, "RSA")
            else:
                error = self.assertRaises(KeyNotAllowed, key_algorithm, key)
                self.assertIn(f"a public exponent of {bits} bits", str(error))

    @settings(max_examples=500, deadline=None)
    @given(st.data())
    def test_any_change(self, data: st.DataObject) -> None:
        """A certificate with any octets changed is refused with a typed error and without a warning."""
        whole = bytearray(LEAF.public_bytes(Encoding.DER))
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        if bytes(whole) != LEAF.public_bytes(Encoding.DER):
            self.assertIsInstance(refusal(bytes(whole)), SvidInvalid)

    @settings(max_examples=200, deadline=None)
    @given(st.sampled_from(range(8)), st.binary(max_size=40), st.integers(0, 255))
    def test_any_field(self, position: int, content: bytes, tag: int) -> None:
        """A certificate with any field replaced by any element is refused with a typed error and without a warning."""
        self.assertIsInstance(refusal(rebuilt(LEAF, {position: der(tag, content)})), SvidInvalid)

    @settings(max_examples=200, deadline=None)
    @given(
        st.binary(min_size=1, max_size=60),
        st.sampled_from(["0e", "0f", "11", "12", "13", "1e", "1f", "20", "23", "25"]),
    )
    def test_any_extension(self, value: bytes, last: str) -> None:
        """An extension with any value is refused with a typed error and without a warning."""
        kept = [ROOT.svid(uris=(), eku=None, key_usage=None, ca=None, extensions=()).leaf]
        changed = rebuilt(kept[0], {7: der(0xA3, der(0x30, extension(bytes.fromhex("0603551d" + last), value)))})
        self.assertIsInstance(refusal(changed), SvidInvalid)


class CostTests(SynchronousTestCase):
    """Limits on the cost of presented certificates."""

    def test_huge_names(self) -> None:
        """A chain with a name of a thousand RDNs is refused by the size of the name."""
        huge = name(*(attribute(ORGANIZATION, UTF8, b"%d" % number) for number in range(1000)))
        chain = [load_presented(rebuilt(LEAF, {ISSUER: huge, SUBJECT: name()}))]
        chain += [load_presented(rebuilt(LEAF, {ISSUER: huge, SUBJECT: huge})) for _ in range(3)]
        error = self.assertRaises(SvidMalformed, verify_svid, chain, BUNDLES, NOW + timedelta(seconds=1))
        self.assertIn(f"at most {MAX_NAME}", str(error))
