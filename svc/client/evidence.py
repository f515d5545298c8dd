"""The evidence file of an exchange: it must be new, it appears whole or not at all, and only its owner reads it."""

from __future__ import annotations

import os
import tempfile

from svc.client.errors import EvidenceExists, EvidenceNotSaved
from svc.client.exchange import ExchangeResult
from svc.client.request import Request
from svc.envelope.envelope import Envelope
from svc.folders import sync_folder
from svc.notary.artifact import parse_receipt
from svc.notary.evidence import EvidenceFile


def check_writable(path: str) -> None:
    """Refuse a path where evidence could not be written, before anything is sent."""
    if os.path.lexists(path):
        raise EvidenceExists(path=path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise EvidenceNotSaved(path=path, detail="its folder does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EvidenceNotSaved(path=path, detail="its folder may not be written")


def collect_evidence(request: Request, result: ExchangeResult, body: bytes | None) -> EvidenceFile | None:
    """
    The evidence of an exchange: bodies beside a receipt only, and only small ones; None without a statement.

    Args:
        body: of the response; None where it was not kept.
    """
    if result.statement_envelope is None:
        return None
    statement = Envelope.parse(result.statement_envelope)
    if result.receipt_artifact is None:
        return EvidenceFile(statement)
    _summary, _prefix, sent = request.sent_body()
    return EvidenceFile(statement, parse_receipt(result.receipt_artifact), sent, body)


def save_evidence(path: str, evidence: EvidenceFile) -> None:
    """Write evidence to a new file of mode 0600; where that fails no partial file is left."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        with open(descriptor, "wb") as file:
            file.write(evidence.serialize())
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, never replaces an existing file.
        os.link(temporary, path)
        sync_folder(folder)
    except FileExistsError as error:
        raise EvidenceExists(path=path) from error
    except OSError as error:
        raise EvidenceNotSaved(path=path, detail=(error.strerror or str(error)).lower()) from error
    finally:
        if temporary:
            os.unlink(temporary)
