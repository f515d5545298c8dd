"""Where the statement of a proxy comes from, beside itself: the manager of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from svc.envelope.envelope import Envelope
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import BundleSet, SpiffeID, TrustDomain, X509Svid, spki_sha256
from svc.identity.matchers import ExactID
from svc.naming import MANAGER_PATH
from svc.notary.errors import StatementRefused
from svc.notary.statement import SelfIssued, Statement, verify_statement
from svc.notary.verification import Anchors
from svc.process.clock import utc_now
from svc.proxy.config import ProxySettings
from svc.strictjson import b64u_encode
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit
from svc.workload.source import WorkloadSource
from svc.workload.statementwatch import StatementWatch


class StatementReports:
    """Logs what becomes of the requests."""

    log = Logger()

    def __init__(self) -> None:
        self._lost = FailureStreak()

    def statement_answered(self) -> None:
        if self._lost.count:
            emit(self.log, NotaryEvent.ISSUER_FOUND, attributes={"attempts": self._lost.count})
        self._lost.succeeded()

    def statement_failed(self, error: SvcError) -> None:
        if self._lost.failed(error.reason):
            attributes = {"attempts": self._lost.count}
            emit(
                self.log, NotaryEvent.ISSUER_LOST, detail_reason=error.reason, detail=str(error), attributes=attributes
            )


def statement_watch(
    settings: ProxySettings,
    source: WorkloadSource,
    reactor: Any,
    *,
    pq_bundles: Callable[[], BundleSet | None],
    changed: Callable[[], object],
) -> StatementWatch | None:
    """
    Make what has the statement of the manager; None where it is not to issue it.

    Args:
        settings: the configuration.
        source: the own credentials.
        reactor: the reactor.
        pq_bundles: returns the post-quantum roots; None where only verifiers have them.
        changed: called when there is another statement.
    """
    if settings.controlPlane is None or settings.controlPlaneToken is None or not settings.notarizes:
        return None
    manager = SpiffeID(TrustDomain.parse(settings.trustDomain), MANAGER_PATH)

    def accept(data: bytes, svid: X509Svid) -> Statement:
        roots, envelope = pq_bundles(), Envelope.parse(data)
        evidence = verify_statement(
            envelope,
            expected_id=None,
            profile=Profile.CLASSICAL if roots is None else Profile.parse(settings.notary.profile),
            anchors=Anchors(source.bundles, roots or BundleSet()),
            now=utc_now(),
            peer=None,
            unbound_ok=True,
            issuers=(manager,),
            self_issued=SelfIssued.REFUSE,
            expectations=(svid.spiffe_id,),
        )
        if evidence.spki_sha256 != b64u_encode(spki_sha256(svid.leaf)):
            raise StatementRefused("key_mismatch", expected="the SVID of this proxy")
        return Statement(evidence.id, envelope, evidence.claims, evidence.issued, evidence.expires)

    return StatementWatch(
        str(settings.controlPlane),
        str(settings.controlPlaneToken),
        source,
        reactor,
        now=utc_now,
        expected=ExactID(manager),
        accept=accept,
        changed=changed,
        observer=StatementReports(),
    )
