"""
Clients that share no code with the proxy: the standard library's TLS, Debian's curl and ``openssl s_client``.

Owns credentials as files, one raw connection, and reading of responses with an own, plain reader.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from spiffe import WorkloadApiClient

from svc.identity import X509Svid
from svc.testing.ca import chain_pem, key_pem
from tests.peers.authority import RunningAuthority

if TYPE_CHECKING:
    # Most tests that are such a client need no SPIRE.
    from tests.peers.spire import RunningSpire


@dataclass(frozen=True)
class Credentials:
    """
    PEM files.

    Args:
        certificate: the chain.
        key: its private key.
        roots: the trusted roots.
        spiffe_id: the identity.
    """

    certificate: Path
    key: Path
    roots: Path
    spiffe_id: str

    @classmethod
    def fetch(cls, authority: RunningAuthority | RunningSpire, folder: Path, path: str | None = None) -> Credentials:
        """
        Export an SVID from the Workload API with py-spiffe.

        Args:
            authority: where it is fetched.
            folder: where the files go.
            path: of the SPIFFE ID, where there are several; the default one otherwise.

        Returns:
            The files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with WorkloadApiClient(authority.address) as client:
            context = client.fetch_x509_context(timeout=60.0)
        svid = context.default_svid
        if path is not None:
            svid = next(each for each in context.x509_svids if each.spiffe_id.path == path)
        bundle = context.x509_bundle_set.get_bundle_for_trust_domain(svid.spiffe_id.trust_domain)
        assert bundle is not None
        chain = b"".join(each.public_bytes(Encoding.PEM) for each in svid.cert_chain)
        key = svid.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        roots = b"".join(each.public_bytes(Encoding.PEM) for each in bundle.x509_authorities)
        return cls._written(folder, chain, key, roots, str(svid.spiffe_id))

    @classmethod
    def of(cls, svid: X509Svid, folder: Path, roots: Path) -> Credentials:
        """
        Write any SVID, right or wrong.

        Args:
            svid: the SVID.
            folder: where the files go.
            roots: the trusted roots.

        Returns:
            The files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        return cls._written(folder, chain_pem(svid), key_pem(svid), roots.read_bytes(), str(svid.spiffe_id))

    @classmethod
    def _written(cls, folder: Path, chain: bytes, key: bytes, roots: bytes, spiffe_id: str) -> Credentials:
        files = folder / "chain.pem", folder / "key.pem", folder / "roots.pem"
        for path, data in zip(files, (chain, key, roots), strict=True):
            path.write_bytes(data)
        return cls(*files, spiffe_id)

    def context(self) -> ssl.SSLContext:
        """
        Make TLS settings that present this identity and verify the server's chain.

        Returns:
            A client's settings.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(str(self.roots))
        context.load_cert_chain(str(self.certificate), str(self.key))
        return context

    def for_curl(self) -> list[str]:
        """
        Write the options of curl.

        Returns:
            Arguments; the name in the certificate is not a host name, which curl cannot verify.
        """
        return ["--cert", str(self.certificate), "--key", str(self.key), "--cacert", str(self.roots), "--insecure"]

    def for_openssl(self) -> list[str]:
        """
        Write the options of ``openssl s_client``.

        Returns:
            Arguments.
        """
        return ["-cert", str(self.certificate), "-cert_chain", str(self.certificate), "-key", str(self.key)]


@dataclass
class Response:
    """
    One response as it came.

    Args:
        status: its status code.
        fields: its fields, names in lower case.
        body: its content.
        trailers: the fields behind it.
        interim: the heads of 1xx responses before it.
    """

    status: int
    fields: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    interim: list[tuple[int, list[tuple[str, str]]]] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """
        Find a field.

        Args:
            name: in lower case.

        Returns:
            Its only value, or None.
        """
        values = [value for each, value in self.fields if each == name]
        return values[0] if len(values) == 1 else None


class Ended(ConnectionError):
    """The connection ended before the response was whole."""


class RawConnection:
    """
    A connection whose octets the test writes itself.

    Args:
        port: where to connect.
        credentials: for mutual TLS; None connects plainly.
        seconds: how long anything may take.
        host: an address of this machine.
        before: octets in front of everything, such as a PROXY header.
    """

    def __init__(
        self,
        port: int,
        credentials: Credentials | ssl.SSLContext | None = None,
        seconds: float = 60.0,
        host: str = "127.0.0.1",
        before: bytes = b"",
    ) -> None:
        self._plain = socket.create_connection((host, port), timeout=seconds)
        self._plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._plain.sendall(before)
        self.socket: socket.socket = self._plain
        self._buffer = b""
        if credentials is not None:
            context = credentials.context() if isinstance(credentials, Credentials) else credentials
            try:
                self.socket = context.wrap_socket(self._plain)
            except BaseException:
                self._plain.close()
                raise

    def send(self, data: bytes) -> None:
        """
        Write.

        Args:
            data: octets.
        """
        self.socket.sendall(data)

    def request(self, target: str, *, method: str = "GET", fields: str = "", body: bytes = b"") -> Response:
        """
        Send a request and read its response.

        Args:
            target: path and query.
            method: its method.
            fields: further lines, each with CRLF.
            body: its content; framed by its length where it is not empty or the method is POST.

        Returns:
            The response.
        """
        length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
        self.send(f"{method} {target} HTTP/1.1\r\nHost: test\r\n{length}{fields}\r\n".encode("latin-1") + body)
        return self.read(method)

    def read(self, method: str = "GET") -> Response:
        """
        Read one response.

        Args:
            method: of its request.

        Returns:
            The response.

        Raises:
            Ended: the connection ended in it.
        """
        interim = []
        while True:
            status, fields = self._head()
            if status >= 200 or status == 101:
                break
            interim.append((status, fields))
        response = Response(status, fields, interim=interim)
        if method == "HEAD" or status in (101, 204, 304):
            return response
        coding, length = response.get("transfer-encoding"), response.get("content-length")
        if coding == "chunked":
            self._chunks(response)
        elif length is not None:
            response.body = self.exactly(int(length))
        else:
            response.body = self.rest()
        return response

    def exactly(self, count: int) -> bytes:
        """
        Read a number of octets.

        Args:
            count: how many.

        Returns:
            The octets.

        Raises:
            Ended: there were fewer.
        """
        parts, missing = [self._buffer], count - len(self._buffer)
        while missing > 0:
            data = self._receive()
            if not data:
                raise Ended(f"{missing} of {count} octets are missing behind {b''.join(parts)[:80]!r}")
            parts.append(data)
            missing -= len(data)
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]

    def both_ways(self, data: bytes, count: int) -> bytes:
        """
        Write and read at the same time, in one thread: OpenSSL allows a connection one call at a time.

        Args:
            data: octets to write.
            count: how many to read.

        Returns:
            The octets read.

        Raises:
            Ended: there were fewer.
            TimeoutError: neither direction moved in time.
        """
        got, unsent = bytearray(self._buffer), memoryview(data)
        seconds = self.socket.gettimeout()
        self.socket.setblocking(False)
        try:
            while unsent or len(got) < count:
                moved = 0
                with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                    moved = self.socket.send(unsent[: 256 * 1024]) if unsent else 0
                    unsent = unsent[moved:]
                with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                    part = self.socket.recv(256 * 1024)
                    if not part:
                        raise Ended(f"{count - len(got)} octets are missing")
                    got += part
                    moved += len(part)
                if not moved and not any(select.select([self.socket], [self.socket] if unsent else [], [], seconds)):
                    raise TimeoutError(f"{len(unsent)} octets unsent, {count - len(got)} missing")
        finally:
            self.socket.settimeout(seconds)
        self._buffer = bytes(got[count:])
        return bytes(got[:count])

    def line(self) -> bytes:
        """
        Read a line.

        Returns:
            The line without its end.

        Raises:
            Ended: the connection ended in it.
        """
        while b"\r\n" not in self._buffer:
            data = self._receive()
            if not data:
                raise Ended(f"the connection ended in {self._buffer[:80]!r}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def rest(self) -> bytes:
        """
        Read to the end of the connection.

        Returns:
            What was left.
        """
        parts, self._buffer = [self._buffer], b""
        while data := self._receive():
            parts.append(data)
        return b"".join(parts)

    def ended(self) -> bool:
        """
        Wait until the other side has ended the connection and nothing is left to read; returns whether it did.

        Returns:
            True for an end, False for octets.
        """
        return not self._buffer and not self._receive()

    def reset(self) -> None:
        """Drop the connection with a TCP reset."""
        self._plain_socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close it."""
        self.socket.close()
        self._plain.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plain_socket(self) -> socket.socket:
        # wrap_socket takes the descriptor over.
        return self.socket

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(256 * 1024)
        except (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError):
            return b""

    def _head(self) -> tuple[int, list[tuple[str, str]]]:
        start = self.line().decode("latin-1")
        version, status, *_phrase = start.split(" ", 2)
        if not version.startswith("HTTP/1."):
            raise AssertionError(f"this is no status line: {start[:80]!r}")
        return int(status), self._fields()

    def _fields(self) -> list[tuple[str, str]]:
        found = []
        while line := self.line():
            name, _, value = line.decode("latin-1").partition(":")
            found.append((name.lower(), value.strip()))
        return found

    def _chunks(self, response: Response) -> None:
        parts = []
        while size := int(self.line().split(b";")[0], 16):
            parts.append(self.exactly(size))
            if self.line():
                raise AssertionError("a chunk does not end where it says")
        response.body = b"".join(parts)
        response.trailers = self._fields()
