"""A SPIRE server's APIs for entries and bundles, over its Unix socket or over TCP with an administrator's SVID."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from svc.errors import printable
from svc.identity import CertificateFacts, SpiffeID, SvidInvalid, X509Bundle, X509Svid, load_certificate
from svc.identity.rules import check_leaf
from svc.spire.entries import EntryChanges
from svc.spire.errors import BundleRefused, EntriesRefused, SpireUnavailable
from svc.spire.messages import (
    DISSOCIATE,
    BatchBundleResponse,
    BatchDeleteEntryRequest,
    BatchDeleteFederatedBundleRequest,
    BatchEntryRequest,
    BatchEntryResponse,
    BatchSetFederatedBundleRequest,
    BundleMessage,
    GetBundleRequest,
    ListEntriesRequest,
    ListEntriesResponse,
    ListFederatedBundlesRequest,
    ListFederatedBundlesResponse,
)

#: The client side of mutual TLS to a server.
ServerContext: TypeAlias = ssl.SSLContext
_ENTRIES: Final = "/spire.api.server.entry.v1.Entry/"
_BUNDLES: Final = "/spire.api.server.bundle.v1.Bundle/"
#: Entries in one call; a server takes 4 MiB.
PAGE: Final = 200
#: Entries that are read at most.
MAX_ENTRIES: Final = 100_000
#: Bundles of other trust domains in one answer, and those that are read at most.
BUNDLE_PAGE: Final = 16
MAX_BUNDLES: Final = 1000
CALL_SECONDS: Final = 30.0
_Item = TypeVar("_Item")
_REFUSALS: Final = (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED)


@dataclass(frozen=True, slots=True)
class EntryFailure:
    """An entry that the server did not accept; ``detail`` is its explanation."""

    action: str
    id: str
    detail: str


class SpireServer:
    """
    The entries and the bundles of one server; its methods run in asyncio's loop.

    Args:
        connect: makes a channel.
        address: what errors call the server.
    """

    def __init__(self, connect: Callable[[], Channel], address: str) -> None:
        self._connect = connect
        self._address = address
        self._channel: Channel | None = None

    @classmethod
    def at_socket(cls, path: str) -> SpireServer:
        """A server on this machine, by the Unix socket that only administrators can open."""
        return cls(lambda: Channel(path=path), f"unix://{path}")

    @classmethod
    def at_port(cls, host: str, port: int, context: Callable[[], ssl.SSLContext]) -> SpireServer:
        """A server by its TCP port; ``context`` makes that of each connection, as :func:`server_context` does."""
        return cls(lambda: Channel(host, port, ssl=context()), f"{host}:{port}")

    async def entries(self, spiffe_id: SpiffeID | None = None) -> list[Any]:
        """
        Read all entries, those of others too, as messages.

        Args:
            spiffe_id: only those of this one.

        Raises:
            SpireUnavailable: it does not answer, or has more than :data:`MAX_ENTRIES`.
            EntriesRefused: this process may not read them.
        """
        request = ListEntriesRequest(page_size=PAGE)
        if spiffe_id is not None:
            request.filter.by_spiffe_id.trust_domain = spiffe_id.trust_domain.name
            request.filter.by_spiffe_id.path = spiffe_id.path
        return await self._listed(
            f"{_ENTRIES}ListEntries", request, ListEntriesResponse, member="entries", limit=MAX_ENTRIES
        )

    async def apply(self, changes: EntryChanges) -> list[EntryFailure]:
        """
        Make changes; deletions come first, since a new entry may have the DNS name or the selectors of an old one.

        Returns:
            The entries that the server did not accept; the others are changed.

        Raises:
            SpireUnavailable: it does not answer; some of the changes may have been made.
            EntriesRefused: this process may not change entries.
        """
        failures: list[EntryFailure] = []
        for ids in _pages(changes.delete):
            request = BatchDeleteEntryRequest(ids=ids)
            answer = await self._call(
                "delete entries", f"{_ENTRIES}BatchDeleteEntry", request, BatchDeleteEntryRequest, BatchEntryResponse
            )
            # Somebody else may have deleted it.
            failures += _failures("delete", ids, answer, also=Status.NOT_FOUND)
        for action, method, entries in (
            ("create", "BatchCreateEntry", changes.create),
            ("update", "BatchUpdateEntry", changes.update),
        ):
            for page in _pages(entries):
                request = BatchEntryRequest(entries=[each.message() for each in page])
                answer = await self._call(
                    f"{action} entries", _ENTRIES + method, request, BatchEntryRequest, BatchEntryResponse
                )
                failures += _failures(action, [each.id for each in page], answer)
        return failures

    async def bundle(self) -> Any:
        """
        Read the bundle of the server's own trust domain, as a message.

        Raises:
            SpireUnavailable: it does not answer.
            EntriesRefused: this process may not read it.
        """
        method = f"{_BUNDLES}GetBundle"
        return await self._call("read the bundle", method, GetBundleRequest(), GetBundleRequest, BundleMessage)

    async def federated_bundles(self) -> list[Any]:
        """
        Read the bundles of all other trust domains, as messages.

        Raises:
            SpireUnavailable: it does not answer, or has more than :data:`MAX_BUNDLES`.
            EntriesRefused: this process may not read them.
        """
        request = ListFederatedBundlesRequest(page_size=BUNDLE_PAGE)
        return await self._listed(
            f"{_BUNDLES}ListFederatedBundles",
            request,
            ListFederatedBundlesResponse,
            member="bundles",
            limit=MAX_BUNDLES,
        )

    async def set_federated_bundle(self, bundle: Any) -> None:
        """
        Create the bundle of another trust domain, or replace it.

        Args:
            bundle: the message.

        Raises:
            BundleRefused: the server does not accept it.
            SpireUnavailable: it does not answer.
            EntriesRefused: this process may not write bundles.
        """
        request = BatchSetFederatedBundleRequest(bundle=[bundle])
        await self._bundle_changed("set", "BatchSetFederatedBundle", request, bundle.trust_domain)

    async def delete_federated_bundle(self, trust_domain: str) -> None:
        """
        Delete the bundle of another trust domain, if there is one; entries that federate with it do so no more.

        Raises:
            BundleRefused: the server does not delete it.
            SpireUnavailable: it does not answer.
            EntriesRefused: this process may not delete bundles.
        """
        request = BatchDeleteFederatedBundleRequest(trust_domains=[trust_domain], mode=DISSOCIATE)
        await self._bundle_changed("delete", "BatchDeleteFederatedBundle", request, trust_domain, also=Status.NOT_FOUND)

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    async def _bundle_changed(
        self, action: str, method: str, request: Any, trust_domain: str, also: Status | None = None
    ) -> None:
        said = f"{action} the bundle of {trust_domain}"
        answer = await self._call(said, _BUNDLES + method, request, type(request), BatchBundleResponse)
        for each in _failures(action, [trust_domain], answer, also):
            raise BundleRefused(action=action, trust_domain=trust_domain, detail=each.detail)

    async def _listed(self, method: str, request: Any, received: Any, member: str, limit: int) -> list[Any]:
        """Read a list, page by page."""
        found: list[Any] = []
        while True:
            answer = await self._call(f"read {member}", method, request, type(request), received)
            found += getattr(answer, member)
            if len(found) > limit:
                raise SpireUnavailable(address=self._address, detail=f"it has more than {limit} {member}")
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def _call(self, action: str, method: str, request: Any, sent: Any, received: Any) -> Any:
        if self._channel is None:
            self._channel = self._connect()
        call: UnaryUnaryMethod[Any, Any] = UnaryUnaryMethod(self._channel, method, sent, received)
        try:
            return await call(request, timeout=CALL_SECONDS)
        except GRPCError as error:
            if error.status in _REFUSALS:
                self.close()
                raise EntriesRefused(action=action, detail=printable(error.message or error.status.name)) from error
            raise SpireUnavailable(address=self._address, detail=printable(error.message or "")) from error
        except (OSError, StreamTerminatedError) as error:
            self.close()
            detail = printable(error) or type(error).__name__
            raise SpireUnavailable(address=self._address, detail=detail) from error


def _failures(action: str, ids: Sequence[str], answer: Any, also: Status | None = None) -> list[EntryFailure]:
    """What of one call was not accepted; ``also`` is a further status of success."""
    accepted = {Status.OK.value} if also is None else {Status.OK.value, also.value}
    results = [each.status for each in answer.results]
    missing = [EntryFailure(action, each, "the server did not say") for each in ids[len(results) :]]
    refused = [
        EntryFailure(action, name, printable(status.message))
        for name, status in zip(ids, results, strict=False)
        if status.code not in accepted
    ]
    return refused + missing


def _pages(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    return [items[start : start + PAGE] for start in range(0, len(items), PAGE)]


def server_context(svid: X509Svid, bundle: X509Bundle, server_id: SpiffeID) -> ssl.SSLContext:
    """
    Make the TLS context of one connection: with this SVID, to a server that is ``server_id`` by this bundle.

    The key goes to OpenSSL through an anonymous file in memory, since Python's ``ssl`` reads keys from files alone.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in bundle.certificates))
    chain = b"".join(each.public_bytes(Encoding.PEM) for each in svid.chain)
    key = svid.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.memfd_create("svid", os.MFD_CLOEXEC), "wb", buffering=0) as file:
        file.write(chain + key)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")

    class _Checked(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            _check_server(self.getpeercert(binary_form=True), server_id)

    context.sslobject_class = _Checked
    return context


def _check_server(der: bytes | None, server_id: SpiffeID) -> None:
    """OpenSSL has verified the chain; who it is about is decided here."""
    try:
        found = check_leaf(CertificateFacts.read(load_certificate(der or b"")))
    except SvidInvalid as error:
        raise ssl.SSLCertVerificationError(f"it has no SPIFFE ID: {error}") from error
    if found != server_id:
        raise ssl.SSLCertVerificationError(f"it is {found}")
