"""
The notary's answers on the reserved path, before policy and routing: for verified clients, and outbound for the
application of this machine.

Owns the way from a request to the store; who may read what is decided in :mod:`svc.notary.access`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, cast

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from svc import naming
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.identity.matchers import Matcher
from svc.notary.access import (
    NotaryNotFound,
    NotaryRequest,
    NotaryResponse,
    Resource,
    artifact_response,
    authorize_receipt_access,
    authorize_receipt_search,
    check_method,
    parse_notary_path,
    pending_response,
    problem_response,
    root_response,
    search_response,
)
from svc.notary.artifact import stored_artifact
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.notary.receipt import Disclosures
from svc.proxy.errors import NotaryUnavailable
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.reports.summary import receipt_summary
from svc.store.errors import SearchesBusy
from svc.store.interface import INotaryStore
from svc.store.querytext import QueryMalformed, position_text, read_query
from svc.store.records import FoundReceipts, ReceiptQuery, RecordPosition, StoredReceipt

if TYPE_CHECKING:
    from svc.proxy.credential_rotation import CredentialRotation
    from svc.proxy.http.exchange import Exchange, ExchangeClient

#: The most receipts in one response; their summaries are made on the reactor's thread.
_PAGE: Final = 100
#: Searches of one identity at a time, so that it does not take the places of all others.
MAX_SEARCHES: Final = 4
_OUTCOMES: Final = [outcome.value for outcome in ExchangeOutcome]


class NotaryEndpoint:
    """
    Answers for one listener.

    ``readers`` may read the receipts of all clients; ``receipts`` is whether this listener makes any; ``retention``
    is in seconds; ``limits`` are those that the root document contains.
    """

    def __init__(
        self,
        store: INotaryStore,
        notarizer: Notarizer,
        rotation: CredentialRotation,
        *,
        profile: Profile,
        readers: Matcher | None,
        receipts: bool,
        retention: float,
        limits: dict[str, int],
    ) -> None:
        self._store = store
        self._notarizer = notarizer
        self._rotation = rotation
        self._profile = profile
        self._readers = readers
        self._receipts = receipts
        self._retention = timedelta(seconds=retention)
        self._limits = limits
        self._searches: Counter[SpiffeID] = Counter()

    def serve(self, client: ExchangeClient, exchange: Exchange) -> None:
        """See :class:`ReservedPath`."""
        _serve(client, exchange, self._find)

    def _find(self, client: ExchangeClient, request: NotaryRequest, query: bytes) -> Deferred[NotaryResponse]:
        credentials, identity = client.caller.credentials, client.caller.identity
        if credentials is None or identity is None:
            return succeed(problem_response(NotaryUnavailable(), retry_after=1))
        if request.resource is Resource.ROOT:
            return succeed(self._root(credentials))
        if request.resource is Resource.CURRENT_STATEMENT:
            statement = credentials.statement
            return succeed(artifact_response(statement.id, statement.envelope.serialize(), immutable=False))
        if request.resource is Resource.STATEMENT:
            return self._statement(request.key)
        if request.resource is Resource.RECEIPT:
            return self._store.get_receipt(request.key).addCallback(self._receipt, identity)
        if request.resource is Resource.RECEIPTS:
            return self._search(identity, query.decode("latin-1"))
        if self._notarizer.is_in_flight(str(identity), request.key):
            return succeed(pending_response())
        return Deferred.fromCoroutine(self._by_request(identity, request.key))

    def _root(self, credentials: CredentialSet) -> NotaryResponse:
        return root_response(
            issuer=credentials.spiffe_id,
            profile=self._profile,
            algorithms=[signer.alg for signer in credentials.signers],
            receipts=self._receipts,
            limits=self._limits,
            retention=self._retention,
        )

    def _statement(self, statement_id: str) -> Deferred[NotaryResponse]:
        envelope = self._rotation.statement(statement_id)
        if envelope is not None:
            return succeed(artifact_response(statement_id, envelope))
        return self._store.get_statement(statement_id).addCallback(_statement_answer, statement_id)

    async def _by_request(self, identity: SpiffeID, key: str) -> NotaryResponse:
        client = str(identity)
        stored = await self._store.get_by_request(client, key)
        if stored is None:
            if await self._store.reserved(client, key):
                # Another replica is recording it.
                return pending_response()
            # What ran there a moment ago may have been stored between the two questions.
            stored = await self._store.get_by_request(client, key)
        return self._receipt(stored, identity)

    def _receipt(self, stored: StoredReceipt | None, requester: SpiffeID) -> NotaryResponse:
        return _receipt_answer(stored, requester, self._readers)

    def _search(self, requester: SpiffeID, text: str) -> Deferred[NotaryResponse]:
        try:
            query = read_query(text, _OUTCOMES)
        except QueryMalformed as error:
            return succeed(problem_response(error))
        if self._searches[requester] >= MAX_SEARCHES:
            return succeed(problem_response(SearchesBusy(limit=MAX_SEARCHES), retry_after=1))
        party = authorize_receipt_search(requester, self._readers)
        # Unsigned records are not served.
        served = replace(
            query,
            party=None if party is None else str(party),
            level=Level.SIGN_REQUEST.value,
            limit=min(query.limit, _PAGE),
        )
        self._searches[requester] += 1
        found = self._store.find(served).addBoth(self._search_ended, requester)
        return found.addCallback(_search_answer, served)

    def _search_ended(self, found: FoundReceipts | Failure, requester: SpiffeID) -> FoundReceipts | Failure:
        # Also of a client that has left meanwhile: its search is carried out all the same.
        self._searches -= Counter((requester,))
        return found


class CollectedReceipts:
    """
    Answers the application of an outbound listener, which has no identity: with the receipts whose client is this
    proxy, and with statements. They cannot be listed here, and every other path is not found.
    """

    def __init__(self, store: INotaryStore, collector: ReceiptCollector, rotation: CredentialRotation) -> None:
        self._store = store
        self._collector = collector
        self._rotation = rotation

    def serve(self, client: ExchangeClient, exchange: Exchange) -> None:
        """See :class:`ReservedPath`."""
        _serve(client, exchange, lambda _client, request, _query: Deferred.fromCoroutine(self._find(request)))

    async def _find(self, request: NotaryRequest) -> NotaryResponse:
        own, key = self._rotation.identity, request.key
        if own is None:
            return problem_response(NotaryUnavailable(), retry_after=1)
        if request.resource is Resource.STATEMENT:
            return _statement_answer(await self._store.get_statement(key), key)
        if request.resource is Resource.RECEIPT:
            return _receipt_answer(await self._store.get_receipt(key), own, served_to_server=False)
        if request.resource is not Resource.RECEIPT_BY_REQUEST:
            raise NotaryNotFound(requester=own)
        if self._collector.is_in_flight(str(own), key):
            return pending_response()
        return _receipt_answer(await self._store.get_by_request(str(own), key), own, served_to_server=False)


class ReservedPath(Protocol):
    """What answers requests for the reserved path on a listener."""

    def serve(self, client: ExchangeClient, exchange: Exchange) -> None:
        """Answer a request; ``exchange.answer`` is called when the answer is known."""


def _serve(
    client: ExchangeClient,
    exchange: Exchange,
    find: Callable[[ExchangeClient, NotaryRequest, bytes], Deferred[NotaryResponse]],
) -> None:
    try:
        check_method(exchange.head.method.decode("latin-1"))
        request = parse_notary_path(exchange.head.path)
    except SvcError as error:
        _give(exchange, problem_response(error))
        return
    found = find(client, request, exchange.head.target.partition(b"?")[2])
    if not found.called:
        client.pause_for_exchange()
    found.addErrback(_trouble)
    found.addCallback(_give_later, client, exchange)


def _trouble(failure: Failure) -> NotaryResponse:
    error = failure.value
    if isinstance(error, NotaryNotFound):
        return problem_response(error)
    failure.trap(SvcError)
    return problem_response(NotaryUnavailable(), retry_after=1)


def _give_later(answer: NotaryResponse, client: ExchangeClient, exchange: Exchange) -> None:
    if exchange.finished or client.gone:
        return
    _give(exchange, answer)
    client.resume_for_exchange()


def _give(exchange: Exchange, answer: NotaryResponse) -> None:
    exchange.answer(answer.status, list(answer.headers), answer.body)


def _receipt_answer(
    stored: StoredReceipt | None,
    requester: SpiffeID,
    readers: Matcher | None = None,
    *,
    served_to_server: bool = True,
) -> NotaryResponse:
    if stored is None or not stored.signed:
        # Unsigned records are not served.
        raise NotaryNotFound(requester=requester)
    access = authorize_receipt_access(
        requester,
        client=SpiffeID.parse(stored.client) if stored.client else None,
        server=SpiffeID.parse(stored.server) if served_to_server else None,
        readers=readers,
    )
    salts = access.permitted(cast("Disclosures | None", stored.disclosures))
    artifact = stored_artifact(stored.payload, stored.envelope, stored.batch, stored.inclusion, salts) or b""
    media_type = naming.MEDIA_TYPE_ENVELOPE if stored.batch is None else naming.MEDIA_TYPE_BATCHED_RECEIPT
    return artifact_response(stored.id, artifact, media_type=media_type)


def _search_answer(found: FoundReceipts, query: ReceiptQuery) -> NotaryResponse:
    summaries = [
        (receipt_summary(stored.id, stored.payload), position_text(RecordPosition(stored.issued_at, stored.id)))
        for stored in found
    ]
    following = _continuation(found, query)
    return search_response(summaries, None if following is None else position_text(following))


def _continuation(found: FoundReceipts, query: ReceiptQuery) -> RecordPosition | None:
    """
    Where the next search begins.

    The last record that was read may be that of another client, whose id is not shown. Some are then read again: those
    behind the last one that was found, or the whole second of the one that was read.
    """
    last, before = found.next, query.before
    if last is None:
        return None
    if found and found[-1].issued_at == last.issued_at:
        return RecordPosition(found[-1].issued_at, found[-1].id)
    if before is not None and last.issued_at == (before.issued_at if before.id else before.issued_at - 1):
        # One second has more records than a search reads: only behind the last one does the list end at all.
        return last
    return RecordPosition(last.issued_at + 1, "")


def _statement_answer(envelope: bytes | None, statement_id: str) -> NotaryResponse:
    if envelope is None:
        raise NotaryNotFound(requester="anyone")
    return artifact_response(statement_id, envelope)
