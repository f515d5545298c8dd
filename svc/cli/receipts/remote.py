"""The receipts that the notary of a proxy gives to our identity, over mutual TLS."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from svc.cli.curl.network import run_on_network
from svc.cli.curl.plan import CurlPlan, OutputOptions
from svc.cli.curl.request import curl_request
from svc.cli.errors import UsageRefused
from svc.cli.output import Console
from svc.cli.receipts.errors import RecordError
from svc.cli.receipts.plan import Page, ReceiptSource, Record, SourcePlan
from svc.client.connection import ExchangeConnection, FetchedArtifact
from svc.client.exchange import ExchangeContext
from svc.client.problem import read_problem, status_text
from svc.client.target import Target
from svc.client.verification import Demands
from svc.envelope.envelope import Envelope
from svc.envelope.ids import (
    NONCE_BYTES,
    IdMalformed,
    NonceMalformed,
    new_nonce,
    parse_artifact_id,
    parse_nonce,
    parse_typed_id,
    receipt_id,
)
from svc.envelope.profile import Profile
from svc.notary.access import receipt_location, receipt_path, receipts_path, statement_path
from svc.notary.artifact import ReceiptArtifact, parse_receipt
from svc.notary.level import Level
from svc.notary.verification import Anchors
from svc.reports.summary import receipt_summary
from svc.store.querytext import parse_position, write_query
from svc.store.records import ReceiptQuery
from svc.strictjson import JsonRefused, loads_object

_OK: Final = 200
_PENDING: Final = 202
_NOT_FOUND: Final = 404
#: Answers to one list; with empty ones a proxy could keep it from ending.
MAX_PAGES: Final = 10_000
#: Statements that are kept; a proxy could name another one in each receipt.
_MAX_STATEMENTS: Final = 64
_OTHER_VERSION: Final = "is that a svc-proxy, and of this version or a later one? an older one serves no lists"

T = TypeVar("T")


class NotarySource:
    """
    Implements :class:`svc.cli.receipts.plan.ReceiptSource`.

    Args:
        connection: to the proxy, which is opened again where the proxy ends it in order.
        server: host and port, for messages.
    """

    def __init__(self, connection: ExchangeConnection, server: str) -> None:
        self.place = f"the notary at {server}"
        self.nothing = (
            "no receipt matches that our identity may read: a client finds its own, the workload itself and"
            " notary.readers find all; unsigned records are not served"
        )
        self._connection = connection
        # Most receipts name the same few statements.
        self._statements: dict[str, Envelope | None] = {}
        self._pages = 0

    async def find(self, query: ReceiptQuery) -> Page:
        self._pages += 1
        if self._pages > MAX_PAGES:
            raise RecordError("list_endless", place=self.place, count=MAX_PAGES)
        fetched = await self._fetch(f"{receipts_path()}?{write_query(query)}")
        try:
            document = loads_object(fetched.body)
            receipts, following = document["receipts"], document["next"]
            if not isinstance(receipts, list) or not all(isinstance(each, dict) for each in receipts):
                raise ValueError("its receipts are no list of objects")
            if len(receipts) > query.limit:
                raise ValueError(f"it has {len(receipts)} receipts, {query.limit} were asked for")
            position, before = None if following is None else parse_position(str(following)), query.before
            if position is not None and before is not None and (position == before or position[0] > before[0]):
                raise ValueError("it continues where it began, or before that")
            return Page(receipts, position)
        except (JsonRefused, KeyError, ValueError) as error:
            raise RecordError("list_malformed", place=self.place, detail=error) from error

    async def record(self, key: str) -> Record:
        """Find one receipt by its whole id, in any spelling, or by its nonce or ``jti``."""
        wanted, path = _path(key)
        fetched = await self._fetch(path, key)
        receipt = parse_receipt(fetched.body)
        name = receipt_id(receipt.payload)
        if not (wanted == name if wanted else _is_named(receipt.payload, key.strip())):
            raise RecordError("record_altered", place=self.place, key=key)
        return Record(name, receipt.payload, receipt, await self._statement(receipt))

    async def _statement(self, receipt: ReceiptArtifact) -> Envelope | None:
        try:
            svc = loads_object(receipt.payload)["svc"]
            name = parse_artifact_id(svc["workloadStatementID"] if isinstance(svc, dict) else None)
        except (JsonRefused, KeyError, IdMalformed):
            return None
        if name not in self._statements:
            fetched = await self._connection.fetch(statement_path(name))
            statement = Envelope.parse(fetched.body) if fetched.head.status == _OK else None
            if len(self._statements) >= _MAX_STATEMENTS:
                del self._statements[next(iter(self._statements))]
            self._statements[name] = statement
        return self._statements[name]

    async def _fetch(self, path: str, key: str = "") -> FetchedArtifact:
        fetched = await self._connection.fetch(path)
        head = fetched.head
        if head.status == _OK:
            return fetched
        answer = status_text(head.status, head.phrase.decode("latin-1"))
        if head.status == _PENDING:
            raise RecordError("record_pending", key=key)
        if head.status == _NOT_FOUND and key:
            raise RecordError("record_missing", place=self.place, key=key)
        problem, peer = read_problem(head, fetched.body), self._connection.peer
        advice = _OTHER_VERSION
        if problem is not None and peer is not None and head.status != _NOT_FOUND:
            advice = problem.advice(peer.own_svid.spiffe_id, peer.svid.spiffe_id)
        code = "" if problem is None else f": {problem.code}"
        raise RecordError("notary_answer", place=self.place, answer=f"{answer}{code}", advice_text=advice)


def run_remote(
    plan: SourcePlan,
    console: Console,
    profile: Profile,
    pq_bundle: str | None,
    work: Callable[[ReceiptSource, Callable[[], Coroutine[Any, Any, Anchors]]], Coroutine[Any, Any, T]],
) -> T:
    """
    Connect to a proxy and do the work with its notary, on the global reactor, once per process.

    Args:
        profile: decides whether post-quantum roots are read.
        pq_bundle: the file with post-quantum roots that a flag or the environment names.
        work: gets the source and a function that reads the roots of the Workload API.
    """
    target = read_target(plan.url)
    request = curl_request(
        target, method="GET", headers=(), body=b"", level=Level.WORKLOAD, nonce=new_nonce(os.urandom(NONCE_BYTES))
    )
    demands = Demands(expected=plan.expected, profile=profile)

    async def connected(context: ExchangeContext) -> T:
        connection = ExchangeConnection(context.dial, request)

        async def anchors() -> Anchors:
            return (await context.trust()).anchors

        try:
            await connection.open()
            peer = connection.peer
            if peer is not None and not plan.expected:
                console.warn(f"server identity not pinned: {peer.svid.spiffe_id}")
            return await work(NotarySource(connection, target.server), anchors)
        finally:
            connection.close()

    return run_on_network(CurlPlan(request, demands, OutputOptions(), plan.options, pq_bundle), console, connected)


def read_target(url: str) -> Target:
    """Read the address of a proxy: ``https://host:port``, without a path."""
    target = Target.parse(url)
    if not target.secure:
        raise UsageRefused(f'--from does not accept "{url}"', "expected: https://host:port, since a proxy is verified")
    if target.path != "/":
        raise UsageRefused(f'--from does not accept "{url}"', "expected: https://host:port, without a path")
    return target


def _is_named(payload: bytes, nonce: str) -> bool:
    """Whether a receipt has a nonce, or a ``jti``."""
    summary = receipt_summary(receipt_id(payload), payload)
    return nonce in (summary["nonce"], summary["jti"])


def _path(key: str) -> tuple[str, str]:
    """The id that a key is, empty where it is none, and the path of its receipt."""
    try:
        name = parse_typed_id(key)
        return name, receipt_path(name)
    except IdMalformed:
        pass
    try:
        return "", receipt_location(parse_nonce(key.strip()))
    except NonceMalformed as error:
        raise UsageRefused(
            f'"{key}" is neither an identifier nor a nonce',
            "expected: a whole id (43 characters), a nonce or a jti (22); with --notary the beginning of an id will do",
        ) from error
