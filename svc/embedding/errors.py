"""Errors of programs that embed a workload or the notary."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class EmbeddingError(SvcError):
    """an embedded workload or notary failed"""

    reasons = {
        "connection_ended": Reason(
            "the server ended the connection between its answer and the statement", hint="ask again"
        ),
        "answer_late": Reason("{url} did not answer within {seconds} s"),
        "answer_broken": Reason("the connection to {url} ended before the answer did: {what}"),
        "answer_too_large": Reason("the answer is larger than {limit} octets"),
        "url_unsupported": Reason("{url} is no https:// address in ASCII"),
        "notary_unavailable": Reason(
            "no statement of this workload within {seconds} s: {what}",
            hint="does the post-quantum issuer run, and does it have an entry for this workload?",
        ),
        "statement_missing": Reason(
            "this workload issues no statements: it was opened without pq_issuer",
            hint="give pq_issuer, the socket of the post-quantum issuer, or profile='classical'",
        ),
        "caller_unknown": Reason(
            "the request did not come through a notary site",
            hint="serve the site through NotarySite or svc-proxy alone, and nothing else at its address",
        ),
    }


class ArgumentInvalid(EmbeddingError):
    """{argument}: {value}: expected {expected}"""

    reason = "argument_invalid"
    hint = "python -m pydoc svc.embedding describes every argument"
