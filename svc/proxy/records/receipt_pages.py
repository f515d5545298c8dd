"""
The last receipts on the web page of ``adminAddr``, and a page with the verification of each.

Owns when they are shown: only while ``adminAddr`` is a loopback address, since they name clients and their requests.
Nothing is taken for verified because this proxy signed it: the one verifier verifies it as it would for anybody.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc import __version__
from svc.envelope.envelope import Envelope
from svc.envelope.ids import IdMalformed, parse_artifact_id
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import BundleSet
from svc.notary.artifact import parse_receipt, stored_artifact
from svc.notary.evidence import EvidenceFile, VerificationResult, verify_offline
from svc.notary.verification import Anchors
from svc.pages.elements import Cell, Chip, Code, Link, Table, note_page
from svc.process.admin import PAGE_POLICY, finish_later, html_answer
from svc.proxy.credential_rotation import CredentialRotation
from svc.reports.account import Account
from svc.reports.checks import EvidenceSource
from svc.reports.exchange_account import stored_account, verification_account
from svc.reports.html import STYLE, html_page
from svc.reports.summary import described, receipt_summary
from svc.settings import HostPort
from svc.store.errors import StoreError
from svc.store.interface import INotaryStore
from svc.store.records import ReceiptQuery, StoredReceipt
from svc.strictjson import loads_object

#: Receipts on the page.
_SHOWN: Final = 20
#: Characters of a path or topic; a longer one would take the room of the other columns, and its report has the whole.
_MAX_PATH: Final = 120
#: Seconds that the page waits for the database: it is read most when something hangs.
_WAIT: Final = 2.0
_TITLE: Final = "Last receipts"
_NOT_LOOPBACK: Final = "Receipts are shown only while adminAddr is a loopback address: they name clients and requests."
_POLICY: Final = (
    f"{PAGE_POLICY}; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)
_T = TypeVar("_T")


class ReceiptMissing(SvcError):
    """there is no record {receipt_id}"""

    reason = "not_found"
    http_status = 404
    hint = "it may be older than notary.retention"


class ReceiptPages:
    """
    What the web page shows of the notary's database.

    Args:
        pq_bundles: reads the post-quantum roots; None where there are none.
        address: the configured ``adminAddr``.
    """

    log = Logger()

    def __init__(
        self,
        store: INotaryStore,
        rotation: CredentialRotation,
        *,
        profile: Profile,
        pq_bundles: Callable[[], BundleSet | None],
        address: HostPort | None,
        clock: Any,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._rotation = rotation
        self._profile = profile
        self._pq_bundles = pq_bundles
        self._clock = clock
        self._now = now
        self.shown = address is not None and is_loopback(address.host)

    async def tables(self) -> tuple[Table, ...]:
        """The newest receipts."""
        if not self.shown:
            return (Table(_TITLE, note=_NOT_LOOPBACK),)
        try:
            found = await self._waited_for(self._store.find(ReceiptQuery(limit=_SHOWN)))
        except StoreError as error:
            return (Table(_TITLE, note=f"The database cannot be read: {error}."),)
        except DeferredTimeout:
            return (Table(_TITLE, note=f"The database did not answer within {_WAIT:.0f} s."),)
        columns = ("Time (UTC)", "Client", "Method", "Path", "Status", "Outcome", "Report")
        return (Table(_TITLE, columns, [_row(each) for each in found], "" if found else "None."),)

    def render(self, request: Request) -> int:
        """Answer ``/receipts/ID``."""
        return finish_later(request, self._page(request), self.log)

    async def _page(self, request: Request) -> bytes:
        if not self.shown:
            return html_answer(request, note_page(_TITLE, _NOT_LOOPBACK), status=403)
        try:
            account = await self._account(b"/".join(request.postpath or ()).decode("latin-1"))
        except (ReceiptMissing, IdMalformed) as error:
            return html_answer(request, note_page(_TITLE, f"{error}; {error.hint}"), status=404)
        except StoreError as error:
            return html_answer(request, note_page(_TITLE, f"the database cannot be read: {error}"), status=503)
        except DeferredTimeout:
            what = f"the database did not answer within {_WAIT:.0f} s"
            return html_answer(request, note_page(_TITLE, what), status=503)
        return html_answer(request, html_page([account], made_by=f"svc-proxy {__version__}"), _POLICY)

    async def _account(self, text: str) -> Account:
        receipt_id = parse_artifact_id(text)
        stored = await self._waited_for(self._store.get_receipt(receipt_id))
        if stored is None:
            raise ReceiptMissing(receipt_id=receipt_id)
        if not stored.signed:
            return stored_account(loads_object(stored.payload), stored.id, signed=False)
        artifact = stored_artifact(stored.payload, stored.envelope, stored.batch, stored.inclusion) or b""
        source = EvidenceSource(
            name=f"the notary's record {stored.id}",
            size=len(artifact),
            sha256=hashlib.sha256(artifact).digest(),
            verified_at=self._now(),
            profile=self._profile,
            roots=("the SPIFFE bundles and post-quantum roots that this proxy uses now",),
        )
        evidence = None
        try:
            evidence = EvidenceFile(await self._statement(stored), parse_receipt(artifact))
            result = self._verified(evidence)
        except StoreError:
            raise
        except SvcError as error:
            # Of the verification, or of the file with the post-quantum roots.
            result = VerificationResult(error=error)
        return verification_account(result, source, evidence)

    async def _statement(self, stored: StoredReceipt) -> Envelope:
        statement_id = stored.statement_id or ""
        found = self._rotation.statement(statement_id)
        if found is None:
            found = await self._waited_for(self._store.get_statement(statement_id))
        if found is None:
            raise StatementNotStored(statement_id=statement_id)
        return Envelope.parse(found)

    def _verified(self, evidence: EvidenceFile) -> VerificationResult:
        """Verify a receipt at its ``iat`` under the roots of now."""
        anchors = Anchors(self._rotation.bundles, self._pq_bundles() or BundleSet())
        return verify_offline(evidence, profile=self._profile, anchors=anchors, now=self._now())

    def _waited_for(self, read: Deferred[_T]) -> Deferred[_T]:
        return read.addTimeout(_WAIT, self._clock)


class StatementNotStored(SvcError):
    """the workload statement {statement_id} that the receipt names is not stored"""

    reason = "not_found"


class ReceiptResource(Resource):
    """``/receipts/ID``."""

    isLeaf = True

    def __init__(self, pages: ReceiptPages) -> None:
        super().__init__()
        self._pages = pages

    def render_GET(self, request: Request) -> int:
        return self._pages.render(request)


def is_loopback(host: str) -> bool:
    """Whether a host of the configuration is this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _row(stored: StoredReceipt) -> tuple[Cell, ...]:
    when = datetime.fromtimestamp(stored.issued_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    summary = receipt_summary(stored.id, stored.payload)
    method, path, status = described(summary)
    whole = stored.outcome in ("complete", "upgraded")
    outcome = stored.outcome if whole else Chip(stored.outcome, "warn")
    link = Link("Verify" if stored.signed else "Show", f"/receipts/{stored.id}")
    client = Code(stored.client) if stored.client else None
    method_shown, status_shown = (None if each is None else str(each) for each in (method, status))
    text = str(path)
    path_shown = None if path is None else Code(text if len(text) <= _MAX_PATH else f"{text[: _MAX_PATH - 1]}…")
    return when, client, method_shown, path_shown, status_shown, outcome, link
