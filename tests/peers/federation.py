"""Simulated peers of federation: each has a trust domain, roots, keys and a TLS endpoint of its own, which rotate."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from svc.federation.package import VerifiedPackage, sign_package
from svc.federation.payload import M2MEndpoint, PackageContent, PeerBundle
from svc.federation.rootkeys import RootKeys
from svc.identity import SpiffeID, TrustDomain, X509Bundle
from svc.identity.documents import certificate_to_base64
from svc.identity.pqbundle import PqBundle
from svc.notary.pqissuer import PqIssuer
from svc.process.clock import utc_now
from svc.testing.ca import TestAuthority

PACKAGE: Final = "/v1/bootstrap-package"
#: Of so many SVIDs that a peer shows, one is of another root than the one before.
_SVIDS_OF_A_ROOT: Final = 2
_MONTH: Final = timedelta(days=30)


class SimulatedPeer:
    """
    One peer. Whenever it has given its package it shows another SVID, and publishes the root of the next ones before.

    Attributes:
        asked: when its package was asked for, in seconds of a monotonic clock.
        roots: the serial numbers of the roots whose SVIDs it has shown.
    """

    def __init__(self, name: str, hint: int, folder: Path) -> None:
        self.trust_domain = TrustDomain(name)
        self.asked: list[float] = []
        self.roots: list[int] = []
        self._hint = hint
        self._pem = folder / f"{name}.pem"
        self._keys = RootKeys.make()
        self._issuers = [self._authority(), self._authority()]
        pq = PqIssuer.create(self.trust_domain, utc_now(), _MONTH, os.urandom)
        self._pq = PqBundle(1, X509Bundle.from_certificates(self.trust_domain, [pq.certificate]))
        self._shown = 0
        self._issued = utc_now().replace(microsecond=0) - timedelta(minutes=5)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.package = self._next_package()
        self._show()

    def answer(self, path: str) -> bytes | None:
        """What a request gets; None for nothing."""
        if path != PACKAGE:
            return None
        self.asked.append(time.monotonic())
        self._shown += 1
        if self._shown % _SVIDS_OF_A_ROOT == 0:
            self._issuers = [self._issuers[1], self._authority()]
        # Who asked has the root of the next SVIDs by this answer, at the latest.
        self.package = answer = self._next_package()
        self._show()
        return answer.package.serialize()

    def _authority(self) -> TestAuthority:
        return TestAuthority(self.trust_domain.name, now=utc_now())

    def _show(self) -> None:
        issuer = self._issuers[0]
        svid = issuer.svid("/svc/m2m")
        key = svid.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._pem.write_bytes(key + b"".join(each.public_bytes(Encoding.PEM) for each in svid.chain))
        self.context.load_cert_chain(self._pem)
        self.roots.append(issuer.certificate.serial_number)

    def _next_package(self) -> VerifiedPackage:
        self._issued = max(self._issued + timedelta(seconds=1), utc_now().replace(microsecond=0) - timedelta(minutes=1))
        return sign_package(self._content(self._issued), self._keys.signers)

    def _content(self, issued: datetime) -> PackageContent:
        certificates = [each.certificate for each in self._issuers]
        keys = tuple({"kty": "EC", "use": "x509-svid", "x5c": [certificate_to_base64(each)]} for each in certificates)
        roots = X509Bundle.from_certificates(self.trust_domain, certificates)
        return PackageContent(
            issuer=SpiffeID(self.trust_domain, "/svc/manager"),
            issued=issued,
            expires=issued + _MONTH,
            trust_domain=self.trust_domain,
            sequence=1,
            roots=self._keys.roots,
            previous=None,
            chains=(),
            bundle=PeerBundle(len(self.roots) + 1, self._hint, keys, roots),
            pq=self._pq,
            m2m=M2MEndpoint(SpiffeID(self.trust_domain, "/svc/m2m")),
        )


class SimulatedPeers:
    """
    Peers with a port each, all served by one thread.

    Args:
        count: how many.
        hint: the refresh hint of their bundles, in seconds.
        folder: for their keys.
    """

    def __init__(self, count: int, hint: int, folder: Path) -> None:
        self.peers = [SimulatedPeer(f"peer-{number}.example", hint, folder) for number in range(count)]
        self._ports: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ports = self._call(self._serve())
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def objects(self) -> Sequence[dict[str, Any]]:
        """The ``SvcForeignCluster`` of each of them, with its package."""
        found = []
        for each, port in zip(self.peers, self._ports, strict=True):
            data = base64.b64encode(each.package.package.serialize()).decode("ascii")
            spec = {"trustDomain": each.trust_domain.name, "m2mEndpoint": f"127.0.0.1:{port}", "bootstrapPackage": data}
            head = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcForeignCluster"}
            found.append({**head, "metadata": {"name": each.trust_domain.name}, "spec": spec})
        return found

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _serve(self) -> list[int]:
        ports = []
        for each in self.peers:
            server = await asyncio.start_server(_handler(each), "127.0.0.1", 0, ssl=each.context)
            ports.append(int(server.sockets[0].getsockname()[1]))
        return ports


def _handler(peer: SimulatedPeer) -> Any:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = peer.answer(head.split(b" ", 2)[1].decode("ascii"))
                status = b"404 Not Found" if body is None else b"200 OK"
                body = body or b""
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    return handle
