"""What can be wrong with a record, or with the source that gives it."""

from __future__ import annotations

from svc.cli.errors import CliError
from svc.errors import Reason
from svc.notary.errors import StatementMissing


class RecordError(CliError):
    """the record cannot be given"""

    reasons = {
        "config_malformed": Reason(
            "{path} does not say where the notary's records are: {defect}",
            "name the database with --notary; svc-proxy --check-config checks a configuration",
        ),
        "record_missing": Reason(
            "{place} has no record {key}",
            "svc receipts list shows what there is; records are deleted after notary.retention, and a proxy gives only"
            " signed ones, to their client, the workload itself and notary.readers",
        ),
        "record_ambiguous": Reason(
            "{key} is the beginning, nonce or jti of several records: {found}", "give the whole id of one"
        ),
        "record_unsigned": Reason(
            "the record {key} has no signature and is no evidence: its level is logRequest",
            "svc receipts show prints it; receipts are made at level signRequest",
        ),
        "record_altered": Reason("{place} holds something else under {key}", "do not trust it; compare with a backup"),
        "notary_answer": Reason("{place} answered {answer}", "{advice_text}"),
        "list_malformed": Reason(
            "{place} answered with a list that cannot be read: {detail}", "is that a svc-proxy of this version?"
        ),
        "list_endless": Reason(
            "the list of {place} does not end: {count} answers, and it continues",
            "shorten the list with --since, --until or other filters; where it is short, do not trust that proxy",
        ),
        "record_pending": Reason("the exchange of {key} still runs", "run the command again in a moment"),
        "not_exported": Reason("{count} of {all} receipts could not be exported", "the lines above say which and why"),
    }


class StatementGone(StatementMissing):
    """the notary has no more the statement that the receipt names, so its signer cannot be verified"""

    hint = "statements are deleted with the last receipt that names them; compare with a backup, or with saved evidence"
