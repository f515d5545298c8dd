"""Errors of programs that embed a workload or the notary."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class EmbeddingError(SvcError):
    """an embedded workload or notary failed"""

    reasons = {
        "answer_late": Reason(
            "{url} did not answer within {seconds} s: {missing}",
            hint="is the server overloaded, or stuck? timeout= allows more time",
        ),
        "answer_too_large": Reason(
            "the body of the answer is larger than {limit} octets",
            hint="raise max_body, or read the body while it arrives: stream()",
        ),
        "url_unsupported": Reason(
            "{url} is not https://",
            hint="write https://: a plain connection has no peer that a statement could be bound to",
        ),
        "server_unnamed": Reason(
            "expect names no identity for {server}", hint="add {server} and its SPIFFE ID to expect"
        ),
        "requests_limit": Reason(
            "this agent has its limit of {limit} requests under way", hint="await some of them, or raise max_requests"
        ),
        "response_foreign": Reason(
            "a {kind} is no response of Workload.http_agent", hint="send the request through that agent"
        ),
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
    hint = "python -m pydoc svc.embedding.Workload and svc.embedding.NotarySite describe every argument"
