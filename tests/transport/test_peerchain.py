"""Tests of ``svc.transport.peerchain`` and of the callback that uses it."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL, crypto
from twisted.trial.unittest import SynchronousTestCase

from svc.testing.ca import TestAuthority
from svc.transport.binding import lib
from svc.transport.peerchain import built_chain, sent_chain
from svc.transport.verification import require_verified_peer
from tests.transport.pairs import AUTHORITY, NOW


def pointer(certificate: Any) -> Any:
    """OpenSSL's own object for a certificate."""
    return crypto.load_certificate(crypto.FILETYPE_ASN1, certificate.public_bytes(Encoding.DER))


def octets(*certificates: Any) -> tuple[bytes, ...]:
    """The DER of certificates."""
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in certificates)


class StoreContext:
    """An ``X509_STORE_CTX`` in the middle of verification."""

    def __init__(self, chain: list[Any], *, verify: bool) -> None:
        self._kept = [pointer(certificate) for certificate in chain]
        self._stack = lib.sk_X509_new_null()
        for owned in self._kept:
            assert lib.sk_X509_push(self._stack, owned._x509) > 0
        self._store = lib.X509_STORE_new()
        self.context = lib.X509_STORE_CTX_new()
        assert lib.X509_STORE_CTX_init(self.context, self._store, self._kept[0]._x509, self._stack) == 1
        if verify:
            lib.X509_verify_cert(self.context)
            lib.ERR_clear_error()

    def free(self) -> None:
        lib.X509_STORE_CTX_free(self.context)
        lib.X509_STORE_free(self._store)
        lib.sk_X509_free(self._stack)


class PeerChainTests(SynchronousTestCase):
    """Which of the peer's certificates are read."""

    def setUp(self) -> None:
        low = AUTHORITY.intermediate("one").intermediate("two")
        self.leaf, self.two, self.one = low.svid().chain
        self.unrelated = TestAuthority("foreign.example", now=NOW).certificate

    def context(self, chain: list[Any], *, verify: bool = True) -> Any:
        made = StoreContext(chain, verify=verify)
        self.addCleanup(made.free)
        return made.context

    def test_everything_in_the_order_sent(self) -> None:
        """All certificates are read as they were sent, needed or not."""
        sent = (self.leaf, self.unrelated, self.one, self.two)
        self.assertEqual(sent_chain(self.context(list(sent))), octets(*sent))

    def test_what_openssl_builds(self) -> None:
        """The fallback: leaf and intermediates in order, without the unrelated certificate."""
        built = built_chain(self.context([self.leaf, self.unrelated, self.one, self.two]))
        self.assertEqual(built, octets(self.leaf, self.two, self.one))

    def test_before_anything_is_built(self) -> None:
        """Where OpenSSL has built nothing the leaf alone is read."""
        self.assertEqual(built_chain(self.context([self.leaf, self.one], verify=False)), octets(self.leaf))

    def test_repeated_reading_leaks_and_frees_nothing(self) -> None:
        """The certificates stay usable after their OpenSSL objects are gone."""
        made = StoreContext([self.leaf, self.two, self.one], verify=True)
        chains = [sent_chain(made.context) for _ in range(50)] + [built_chain(made.context) for _ in range(50)]
        made.free()
        for chain in chains:
            self.assertEqual(chain, octets(self.leaf, self.two, self.one))


class CallbackTests(SynchronousTestCase):
    """The callback fails closed."""

    def test_a_connection_without_verification_is_refused(self) -> None:
        """A TLS connection that was not made by our creators accepts no peer at all."""
        svid = AUTHORITY.svid()
        server, client = SSL.Context(SSL.TLS_SERVER_METHOD), SSL.Context(SSL.TLS_CLIENT_METHOD)
        server.use_certificate(svid.leaf)
        server.use_privatekey(svid.private_key)  # type: ignore[arg-type]
        require_verified_peer(client)
        ends = (SSL.Connection(client, None), SSL.Connection(server, None))
        ends[0].set_connect_state()
        ends[1].set_accept_state()
        errors: list[SSL.Error] = []
        for sender, receiver in (ends, ends[::-1], ends):
            try:
                sender.do_handshake()
            except SSL.WantReadError:
                pass
            except SSL.Error as error:
                errors.append(error)
                break
            receiver.bio_write(sender.bio_read(1 << 16))
        [error] = errors
        self.assertEqual(error.args[0][0][2], "certificate verify failed")
