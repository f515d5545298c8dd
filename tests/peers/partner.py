"""
A partner's trust domain whose authority issues whatever a test wants, right or wrong, and TLS on both sides with it.

Owns its bundle file, which a real authority federates with, every kind of wrong SVID, a blocking TLS client and a TLS
server that presents what the test gives it. TLS is the OpenSSL of ``cryptography``, so hybrid groups can be chosen.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from OpenSSL import SSL, crypto

from svc.identity import X509Svid
from svc.testing.ca import TestAuthority, key_pem
from svc.transport.binding import lib
from tests.peers.waiting import free_port

DOMAIN = "partner.example"
HOUR = timedelta(hours=1)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
_HELLO_RETRY = hashlib.sha256(b"HelloRetryRequest").digest()
_X448 = 0x001E


class Partner:
    """
    The trust domain.

    Args:
        path: its bundle file, PEM.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = datetime.now(UTC)
        self.root = TestAuthority(DOMAIN, now=self.now)
        #: A leaf that is among the roots by mistake.
        self.misplaced = self.root.svid("/misplaced")
        self.publish(self.root.certificate, self.misplaced.leaf)

    def publish(self, *roots: x509.Certificate) -> None:
        """
        Write the bundle.

        Args:
            roots: what it holds.
        """
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in roots))
        fresh.replace(self.path)

    def svid(self, path: str = "/api", **knobs: Any) -> X509Svid:
        """
        Issue an SVID.

        Args:
            path: of its SPIFFE ID.
            knobs: what is wrong with it.

        Returns:
            The SVID.
        """
        return self.root.svid(path, **knobs)

    def wrong(self) -> dict[str, X509Svid]:
        """
        Make one SVID for every way in which an SVID can be wrong.

        Returns:
            The SVIDs by the reason for which they are refused.
        """
        root, now = self.root, self.now
        basic = x509.UnrecognizedExtension(ExtensionOID.BASIC_CONSTRAINTS, b"garbage")
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
        long = root
        for level in range(8):
            long = long.intermediate(f"level {level}")
        excluded = (x509.UniformResourceIdentifier(DOMAIN),)
        return {
            "svid_malformed": root.svid(ca=None, extensions=((basic, False),)),
            "certificate_version": root.svid(version=1),
            "critical_extension_unknown": root.svid(extensions=((unknown, True),)),
            "key_not_allowed": root.intermediate(algorithm="ECDSA-P521").svid(),
            "signature_algorithm_not_allowed": root.svid(signature="sha1"),
            "no_uri_san": root.svid(uris=()),
            "too_many_uri_sans": root.svid(uris=(f"spiffe://{DOMAIN}/a", f"spiffe://{DOMAIN}/b")),
            "spiffe_id_malformed": root.svid(uris=(f"https://{DOMAIN}/a",)),
            "root_path": root.svid(uris=(f"spiffe://{DOMAIN}",)),
            "leaf_is_ca": root.svid(ca=True),
            "key_usage": root.svid(key_usage=frozenset({"digital_signature", "crl_sign"})),
            "ext_key_usage": root.svid(eku=(ExtendedKeyUsageOID.CODE_SIGNING,)),
            "leaf_is_anchor": self.misplaced,
            "expired": root.svid(not_before=now - 2 * HOUR, not_after=now - HOUR),
            "not_yet_valid": root.svid(not_before=now + HOUR, not_after=now + 2 * HOUR),
            "trust_domain_unknown": TestAuthority("unknown.example", now=now).svid(),
            "chain_untrusted": root.rotated().svid(),
            "chain_too_long": long.svid(),
            "signing_not_ca": root.intermediate(ca=False).svid(),
            "signing_key_usage": root.intermediate(key_usage=frozenset({"digital_signature"})).svid(),
            "signing_uri_san": root.intermediate(uris=(f"spiffe://{DOMAIN}/ca",)).svid(),
            "path_length": root.intermediate("a", path_length=0).intermediate("b").svid(),
            "name_constraints": root.intermediate(excluded=excluded).svid(),
        }


def context(method: int, svid: X509Svid | None, groups: str | None = None) -> SSL.Context:
    """
    Make TLS 1.3 settings that present an SVID and accept anybody.

    Args:
        method: ``SSL.TLS_CLIENT_METHOD`` or ``SSL.TLS_SERVER_METHOD``.
        svid: what is presented, or None.
        groups: the key exchange groups in OpenSSL's spelling, or its own choice.

    Returns:
        The settings; no key is too weak for them.
    """
    made = SSL.Context(method)
    made.set_min_proto_version(SSL.TLS1_3_VERSION)
    made.set_cipher_list(b"ALL:@SECLEVEL=0")
    made.set_verify(SSL.VERIFY_NONE)
    if method == SSL.TLS_SERVER_METHOD:
        made.set_verify(SSL.VERIFY_PEER, lambda *_judgement: True)
    if groups is not None and lib.SSL_CTX_set1_curves_list(made._context, groups.encode()) != 1:
        raise AssertionError(f"this OpenSSL does not support the groups {groups}")
    if svid is not None:
        made.use_certificate(svid.chain[0])
        for certificate in svid.chain[1:]:
            made.add_extra_chain_cert(certificate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_PEM, key_pem(svid)))
    return made


def attempt(
    port: int,
    svid: X509Svid | None,
    *,
    groups: str | None = None,
    alpn: Sequence[bytes] = (),
    send: bytes = b"GET /bytes/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
) -> bytes:
    """
    Connect, send and read to the end.

    Args:
        port: where.
        svid: who connects.
        groups: the key exchange groups that are offered.
        alpn: the protocols that are offered.
        send: what is sent.

    Returns:
        What came back; empty where TLS failed.
    """
    settings = context(SSL.TLS_CLIENT_METHOD, svid, groups)
    if alpn:
        settings.set_alpn_protos(list(alpn))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        # A timeout of Python would make the descriptor non-blocking under OpenSSL.
        plain.settimeout(None)
        connection = SSL.Connection(settings, plain)
        connection.set_connect_state()
        parts = []
        with suppress(SSL.Error):
            connection.do_handshake()
            connection.sendall(send)
            while data := connection.recv(65536):
                parts.append(data)
        return b"".join(parts)


class PeerServer:
    """
    A server at the far end of outbound listeners, one thread a connection.

    Attributes:
        port: where it listens.
        svid: what it presents from now on.
        groups: the key exchange groups that it has from now on.
        mode: ``tls``, ``garbage`` (no TLS), ``silent``, ``retry`` (asks for a group that nobody offers), or
            ``refusing`` (refuses every client).
        received: application octets that came so far.
    """

    def __init__(self, svid: X509Svid) -> None:
        self.port = free_port()
        self.svid = svid
        self.groups: str | None = None
        self.mode = "tls"
        self.received = 0
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                serve = getattr(self, f"_{self.mode}")
                threading.Thread(target=self._guarded, args=(serve, plain), daemon=True).start()

    def _guarded(self, serve: Any, plain: socket.socket) -> None:
        with plain, suppress(SSL.Error, OSError):
            serve(plain)

    def _tls(self, plain: socket.socket) -> None:
        connection = SSL.Connection(context(SSL.TLS_SERVER_METHOD, self.svid, self.groups), plain)
        connection.set_accept_state()
        connection.do_handshake()
        head = b""
        while data := connection.recv(65536):
            self.received += len(data)
            head += data
            if head.endswith(b"\r\n\r\n"):
                connection.sendall(ANSWER)
                head = b""

    def _refusing(self, plain: socket.socket) -> None:
        """Refuse the client's certificate, for which there is no root here (RFC 8446, section 4.4.2.4)."""
        settings = context(SSL.TLS_SERVER_METHOD, self.svid, self.groups)
        settings.set_verify(SSL.VERIFY_PEER, lambda *_judgement: False)
        connection = SSL.Connection(settings, plain)
        connection.set_accept_state()
        with suppress(SSL.Error):
            connection.do_handshake()
        plain.shutdown(socket.SHUT_WR)
        while plain.recv(65536):
            pass

    def _garbage(self, plain: socket.socket) -> None:
        plain.recv(65536)
        plain.sendall(b"220 this is not the server you look for\r\n")

    def _silent(self, plain: socket.socket) -> None:
        self._over.wait(60)

    def _retry(self, plain: socket.socket) -> None:
        """Ask for x448 in a HelloRetryRequest (RFC 8446, section 4.1.4)."""
        hello = plain.recv(65536)
        session = hello[43 + 1 : 43 + 1 + hello[43]]
        extensions = struct.pack(">HHH", 43, 2, 0x0304) + struct.pack(">HHH", 51, 2, _X448)
        body = b"\x03\x03" + _HELLO_RETRY + bytes((len(session),)) + session + b"\x13\x01\x00"
        body += struct.pack(">H", len(extensions)) + extensions
        message = b"\x02" + struct.pack(">I", len(body))[1:] + body
        plain.sendall(b"\x16\x03\x03" + struct.pack(">H", len(message)) + message)
        plain.recv(65536)
