"""Which fields are forwarded, and which options ``Connection`` may have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.naming import (
    HEADER_FORWARDED_CLIENT,
    HEADER_LEVEL,
    HEADER_NONCE,
    HEADER_RECEIPT_LOCATION,
    HEADER_WORKLOAD_ID,
)
from svc.wire.errors import RemoteProtocolError
from svc.wire.fields import (
    FIELD_CLASSES,
    FRAMING,
    HOP_BY_HOP,
    classify,
    connection_options,
    encode_fields,
    end_to_end_fields,
    end_to_end_trailers,
    is_forwarding,
    is_reserved,
    is_token,
)
from tests.refusals import assert_refused

OURS = (HEADER_FORWARDED_CLIENT, HEADER_LEVEL, HEADER_NONCE, HEADER_RECEIPT_LOCATION, HEADER_WORKLOAD_ID)
#: Names by which proxies describe their client; applications read the last ones too.
FORWARDING = (
    *("Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Ssl"),
    *("X-Forwarded-Prefix", "X-Forwarded-User", "X-Forwarded-Anything", "X-Forwarded", "Forwarded-For", "X-Real-IP"),
    *("Client-IP", "X-Client-IP", "True-Client-IP", "X-Cluster-Client-IP", "Client-Cert", "Client-Cert-Chain"),
)
TOKEN = st.text("!#$%&'*+-.^_`|~0123456789abcXYZ", min_size=1, max_size=20).map(str.encode)
FIELDS = st.lists(
    st.tuples(
        TOKEN | st.sampled_from([*HOP_BY_HOP, *FRAMING, *(name.encode() for name in (*OURS, *FORWARDING))]),
        st.binary(max_size=9),
    )
)


def spellings(name: str) -> list[bytes]:
    """Return all spellings that an application could take for a name."""
    spelled = {name, name.lower(), name.upper(), name.swapcase(), name.title()}
    spelled |= {word.replace("-", "_") for word in spelled}
    spelled |= {word.replace("-", "_", 1) for word in spelled}
    return [word.encode("ascii") for word in sorted(spelled)]


class ReservedTests(SynchronousTestCase):
    """Fields that only the proxy may set."""

    def test_all_spellings(self) -> None:
        """Case and underscores do not hide a reserved field."""
        for name in OURS:
            for spelling in spellings(name):
                self.assertTrue(is_reserved(spelling.lower()), spelling)
                self.assertEqual(classify(spelling), (spelling.lower(), True))

    def test_the_whole_prefix(self) -> None:
        """Unused names with the prefix are reserved too."""
        for name in (b"svc-", b"svc_", b"svc-x", b"svc_anything"):
            self.assertTrue(is_reserved(name), name)

    def test_what_gateways_make_the_same_variable_of(self) -> None:
        """A name with any sign in place of a hyphen may become the same variable of an application, and is reserved."""
        for sign in b"!#$%&'*+.^_`|~":
            for name in (b"x-forwarded-client-cert", b"x-forwarded-client_cert", b"svc-workload-id", b"svc-"):
                self.assertTrue(is_reserved(name.replace(b"-", bytes([sign]))), (name, sign))
        self.assertEqual(
            end_to_end_fields([(b"X.Forwarded-Client.Cert", b"URI=a"), (b"A.B", b"c")], frozenset()), [(b"A.B", b"c")]
        )

    def test_others(self) -> None:
        """Names that are merely similar are not reserved."""
        for name in (
            b"svc",
            b"svcx-level",
            b"x-svc-level",
            b"x-forwarded-client-cert-2",
            b"x-forwarded-for",
            b"",
            b"s-vc",
        ):
            self.assertFalse(is_reserved(name), name)

    def test_hop_by_hop(self) -> None:
        """Hop-by-hop fields are never forwarded, in any case."""
        for name in HOP_BY_HOP:
            self.assertEqual(classify(name.upper()), (name, True))
        self.assertEqual(classify(b"Content-Length"), (b"content-length", False))
        self.assertEqual(classify(b"Content_Length"), (b"content_length", True))
        self.assertEqual(classify(b"Transfer_Encoding"), (b"transfer_encoding", True))

    def test_what_peers_name_is_not_kept_for_ever(self) -> None:
        """The cache is bounded in number and length of names, and does not change the result."""
        for number in range(6000):
            self.assertEqual(classify(b"X-%d" % number), (b"x-%d" % number, False))
        long = b"Svc-" + b"a" * 30000
        self.assertEqual(classify(long), (long.lower(), True))
        self.assertLessEqual(len(FIELD_CLASSES), 4096)
        self.assertLessEqual(max(map(len, FIELD_CLASSES)), 64)


class ForwardingTests(SynchronousTestCase):
    """Fields by which proxies describe their client."""

    def test_all_spellings(self) -> None:
        """Case, and any sign that gateways make the same variable of, do not hide a forwarding field."""
        for name in FORWARDING:
            for sign in "-!#$%&'*+.^_`|~":
                for spelling in {*spellings(name), name.replace("-", sign).encode()}:
                    self.assertTrue(is_forwarding(spelling.lower()), spelling)
                    self.assertEqual(end_to_end_fields([(spelling, b"x")], frozenset(), drop_forwarding=True), [])
                    self.assertEqual(end_to_end_trailers([(spelling, b"x")], frozenset(), drop_forwarding=True), [])

    def test_kept_by_default(self) -> None:
        """Without the option they are fields like any other, except the one that is reserved."""
        for name in FORWARDING:
            field = (name.encode(), b"x")
            self.assertEqual(end_to_end_fields([field], frozenset()), [field])
            self.assertEqual(end_to_end_fields([field], frozenset({field[0].lower()})), [])
        self.assertEqual(end_to_end_fields([(HEADER_FORWARDED_CLIENT.encode(), b"x")], frozenset()), [])

    def test_others(self) -> None:
        """Names that are merely similar are forwarded in any case."""
        for name in (b"Forward", b"X-Forward-For", b"Real-IP", b"Client", b"Client-Certificate", b"X-Client", b"Via"):
            self.assertFalse(is_forwarding(name.lower()), name)
            self.assertEqual(end_to_end_fields([(name, b"x")], frozenset(), drop_forwarding=True), [(name, b"x")])


class ConnectionTests(SynchronousTestCase):
    """The options of ``Connection``."""

    def test_options(self) -> None:
        """Lists of several fields are joined, in lower case, without empty elements."""
        self.assertEqual(connection_options([]), frozenset())
        self.assertEqual(connection_options([b"", b" , ,"]), frozenset())
        self.assertEqual(connection_options([b"Close"]), {b"close"})
        self.assertEqual(connection_options([b"keep-alive,\tX-A ", b"TE"]), {b"keep-alive", b"x-a", b"te"})

    def test_refused(self) -> None:
        """Fields that frame the message, and fields that the proxy adds, cannot be named."""
        named = [*FRAMING, *(spelling for name in OURS for spelling in spellings(name))]
        for name in named:
            for value in (name, name.upper(), b"close, " + name, b"x ," + name + b",y"):
                error = assert_refused(self, "field_refused", connection_options, [b"te", value])
                self.assertEqual((error.reason, error.http_status), ("field_refused", 400))

    def test_not_a_list_of_names(self) -> None:
        """Anything but names is refused: the next reader could find a name in it."""
        for value in (b"close;q=1", b"close x", b'"close"', b"host:", b"\xff", b"x, a/b", b"close\x0b"):
            assert_refused(self, "field_refused", connection_options, [value])

    @given(st.lists(TOKEN.filter(lambda name: not is_reserved(name.lower()) and name.lower() not in FRAMING)))
    def test_any_other_names(self, names: list[bytes]) -> None:
        """Any other names are returned in lower case."""
        self.assertEqual(connection_options([b", ".join(names)]), {name.lower() for name in names})

    @given(st.lists(st.binary(max_size=30)))
    def test_any_octets(self, values: list[bytes]) -> None:
        """Any octets give names or RemoteProtocolError."""
        try:
            options = connection_options(values)
        except RemoteProtocolError:
            return
        self.assertTrue(all(is_token(option) and option == option.lower() for option in options))


class EndToEndTests(SynchronousTestCase):
    """What is forwarded."""

    def test_a_head(self) -> None:
        """Order, spelling and duplicates stay; hop-by-hop, reserved and named fields are dropped."""
        head = [
            (b"Host", b"a"),
            (b"Connection", b"x-named"),
            (b"X-Named", b"1"),
            (b"X-NAMED", b"2"),
            (b"Set-Cookie", b"1"),
            (b"SVC-Level", b"1"),
            (b"svc_level", b"1"),
            (b"X_Forwarded_Client_Cert", b"1"),
            (b"set-cookie", b"2"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Content_Length", b"5"),
            (b"Content-Length", b"5"),
        ]
        kept = [(b"Host", b"a"), (b"Set-Cookie", b"1"), (b"set-cookie", b"2"), (b"Content-Length", b"5")]
        self.assertEqual(end_to_end_fields(head, frozenset({b"x-named"})), kept)
        self.assertEqual(
            end_to_end_fields(head, frozenset()), [kept[0], (b"X-Named", b"1"), (b"X-NAMED", b"2"), *kept[1:]]
        )

    def test_trailers(self) -> None:
        """Trailers that frame, route or describe the content are dropped too (RFC 9110 section 6.5.1)."""
        trailers = [(b"X-Digest", b"1"), (b"HOST", b"b"), (b"Content-Type", b"a/b"), (b"Svc_A", b"1"), (b"x-a", b"1")]
        trailers += [(b"Content-Length", b"5"), (b"Content-Encoding", b"gzip"), (b"Content_Length", b"5")]
        self.assertEqual(end_to_end_trailers(trailers, frozenset({b"x-a"})), [(b"X-Digest", b"1")])

    @given(FIELDS, st.frozensets(TOKEN.map(bytes.lower)), st.booleans())
    def test_any_fields(self, fields: list[tuple[bytes, bytes]], named: frozenset[bytes], drop: bool) -> None:
        """The result is a subset of the fields in their order, without any forbidden field."""
        kept = end_to_end_fields(fields, named, drop_forwarding=drop)
        rest = iter(fields)
        self.assertTrue(all(field in rest for field in kept))
        for name, _ in kept:
            lower = name.lower()
            self.assertFalse(lower in named or lower in HOP_BY_HOP or is_reserved(lower), name)
            self.assertFalse(drop and is_forwarding(lower), name)
        dropped = [name.lower() for name, _ in fields if (name.lower() not in [k.lower() for k, _ in kept])]
        for lower in dropped:
            self.assertTrue(
                lower in named | HOP_BY_HOP | {b"content_length", b"transfer_encoding"}
                or is_reserved(lower)
                or (drop and is_forwarding(lower)),
                lower,
            )
        trailers = end_to_end_trailers(fields, named, drop_forwarding=drop)
        self.assertEqual(trailers, [field for field in kept if field[0].lower() not in FRAMING])

    def test_encode_fields(self) -> None:
        """Fields are written with a colon, one space and CRLF."""
        self.assertEqual(encode_fields([]), b"")
        self.assertEqual(encode_fields([(b"A", b"b"), (b"C", b"")]), b"A: b\r\nC: \r\n")


class TokenTests(SynchronousTestCase):
    """Tokens (RFC 9110 section 5.6.2)."""

    def test_every_octet(self) -> None:
        """Exactly the letters, digits and fifteen marks are token octets; LF at the end is none."""
        allowed = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
        found = bytes(octet for octet in range(256) if is_token(bytes([octet])))
        self.assertEqual(found, bytes(sorted(allowed)))
        self.assertEqual([is_token(text) for text in (b"", b"a\n", b"a b", b"ab")], [False, False, False, True])
