"""
What the authority tells its operator.

Owns the mapping from grants, refusals and changes to log records, and how many refusals are worth a record. Records go
to Twisted's logger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cryptography import x509
from grpclib.const import Status
from twisted.logger import Logger, LogLevel

from svc.errors import SvcError
from svc.identity.certificate import CertificateFacts
from svc.identity.errors import SvidInvalid
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID
from svc.workload.authority.attestation import Caller

#: One record a second for each kind of refusal by one user.
REFUSAL_SECONDS: Final = 1.0
_MAX_KINDS: Final = 1024


class AuthorityLog:
    """
    Writes records; implements the observers of the Workload API and of the PQ issuer.

    Args:
        seconds: tells a time in seconds, for the rate of refusals.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._refusals: dict[tuple[int, str], tuple[float, int]] = {}

    def granted(self, caller: Caller, call: str, identities: tuple[SpiffeID, ...]) -> None:
        """
        Record an issued SVID; bundles are public and leave no record.

        Args:
            caller: who asked.
            call: the method.
            identities: what it got.
        """
        if call not in ("FetchX509SVID", "FetchJWTSVID"):
            return
        for identity in identities:
            self.say(
                "svc.authority.svid.issued",
                {"peer_spiffe_id": str(identity)},
                {"call": call, "uid": caller.uid, "gid": caller.gid, "pid": caller.pid},
            )

    def refused(self, caller: Caller | None, call: str, status: Status, detail: str) -> None:
        """
        Record a refusal.

        Args:
            caller: who asked, where that is known.
            call: the method.
            status: the status it got.
            detail: the sentence it got.
        """
        uid = -1 if caller is None else caller.uid
        attributes: dict[str, object] = {"call": call, "status": status.name}
        if caller is not None:
            attributes |= {"uid": uid, "gid": caller.gid, "pid": caller.pid, "executable": caller.executable or ""}
        self._refusal(uid, status.name, {"detail_reason": status.name.lower(), "detail": detail}, attributes)

    def leaf_issued(self, leaf: x509.Certificate) -> None:
        """
        Record an issued post-quantum leaf.

        Args:
            leaf: the leaf.
        """
        try:
            name = str(check_leaf(CertificateFacts.read(leaf)))
        except SvidInvalid as error:
            name = error.reason
        self.say("svc.authority.pq_leaf.issued", {"peer_spiffe_id": name}, {})

    def leaf_refused(self, error: SvcError) -> None:
        """
        Record a refused request for a post-quantum leaf.

        Args:
            error: why.
        """
        fields = {"detail_reason": error.reason, "detail": str(error)}
        self._refusal(-1, error.reason, fields, {"call": "pq-leaf"})

    def file_refused(self, path: str, error: SvcError) -> None:
        """
        Record a file that is not used.

        Args:
            path: the file.
            error: why.
        """
        fields = {"detail_reason": error.reason, "detail": str(error)}
        self.say("svc.workload.update.rejected", fields, {"path": path}, warn=True)

    def say(self, event: str, fields: dict[str, str], attributes: dict[str, object], *, warn: bool = False) -> None:
        """
        Write a record.

        Args:
            event: its registered name.
            fields: fields of the record.
            attributes: further facts.
            warn: whether an operator should look.
        """
        level = LogLevel.warn if warn else LogLevel.info
        self.log.emit(level, None, svc_event=event, svc_fields=fields, svc_attributes=attributes)

    def _refusal(self, uid: int, kind: str, fields: dict[str, str], attributes: dict[str, object]) -> None:
        now, key = self._seconds(), (uid, kind)
        last, suppressed = self._refusals.get(key, (now - REFUSAL_SECONDS, 0))
        if now - last < REFUSAL_SECONDS:
            self._refusals[key] = (last, suppressed + 1)
            return
        if len(self._refusals) >= _MAX_KINDS:
            self._refusals.clear()
        self._refusals[key] = (now, 0)
        if suppressed:
            attributes = {**attributes, "suppressed": suppressed}
        self.say("svc.authority.refused", fields, attributes, warn=True)


class LibraryLog(logging.Handler):
    """Hands records of the standard library's logging, which grpclib and asyncio use, to Twisted's logger."""

    log = Logger(namespace="svc.workload.authority.library")

    def emit(self, record: logging.LogRecord) -> None:
        """
        Hand over a record.

        Args:
            record: the record.
        """
        text = self.format(record).split("\n", 1)[0]
        speak = self.log.warn if record.levelno < logging.ERROR else self.log.error
        speak("{library}: {text}", library=record.name, text=text)
