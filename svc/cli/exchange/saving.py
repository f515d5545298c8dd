"""
Writing evidence to a file.

Owns how: the file must not exist, it appears whole or not at all, and nobody else may read it.
"""

from __future__ import annotations

import os
import tempfile

from svc.cli.errors import FileNotWritten
from svc.cli.exchange.conduct import Outcome
from svc.cli.exchange.request import Request
from svc.cli.exchange.spool import Spool
from svc.notary.envelope import Envelope
from svc.notary.evidence import MAX_BODY, EvidenceFile


class FileExists(FileNotWritten):
    """{path} exists already and is not overwritten"""

    reason = "file_exists"
    hint = "evidence is never replaced: choose another path, or move the old file away"


def refuse_unwritable(path: str) -> None:
    """
    Find out before anything is sent whether evidence could be written.

    Args:
        path: where it would go.

    Raises:
        FileExists: something is there.
        FileNotWritten: the folder is missing or closed to us.
    """
    if os.path.lexists(path):
        raise FileExists(path=path, detail="it exists")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotWritten(path=path, detail="its folder does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileNotWritten(path=path, detail="its folder may not be written")


def evidence_of(request: Request, outcome: Outcome, spool: Spool) -> EvidenceFile | None:
    """
    Collect the evidence of an exchange.

    Args:
        request: what was sent.
        outcome: what it came to.
        spool: the body of the answer.

    Returns:
        The evidence; bodies stand beside a receipt only, and only small ones. None without a verified statement.
    """
    if outcome.statement_envelope is None:
        return None
    statement = Envelope.parse(outcome.statement_envelope)
    if outcome.receipt_envelope is None:
        return EvidenceFile(statement)
    body = b"".join(spool.pieces()) if spool.size <= MAX_BODY else None
    return EvidenceFile(statement, Envelope.parse(outcome.receipt_envelope), request.body, body)


def save_evidence(path: str, evidence: EvidenceFile) -> None:
    """
    Write evidence to a new file of mode 0600.

    Args:
        path: the file.
        evidence: what goes into it.

    Raises:
        FileExists: something has appeared there.
        FileNotWritten: the system refused; no partial file stays behind.
    """
    folder, name = os.path.split(os.path.abspath(path))
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        with open(descriptor, "wb") as file:
            file.write(evidence.serialize())
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, never replaces what is there.
        os.link(temporary, path)
    except FileExistsError as error:
        raise FileExists(path=path, detail="it exists") from error
    except OSError as error:
        raise FileNotWritten(path=path, detail=(error.strerror or str(error)).lower()) from error
    finally:
        if temporary:
            os.unlink(temporary)
