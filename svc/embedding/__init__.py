"""
For programs that embed: a workload with its endpoints and requests, and the notary before an existing site.

``Workload`` is the identity of the program and sends requests whose responses are verified, ``NotarySite`` serves a
``twisted.web`` site with statements and receipts; programs may also use the packages below directly. ``strings`` parses
endpoint strings that begin with ``spiffe:``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.embedding.agent import HttpAgent
    from svc.embedding.errors import ArgumentInvalid, EmbeddingError
    from svc.embedding.pipe import PipeEndpoint
    from svc.embedding.response import ExchangeEvidence, StreamedResponse, VerifiedResponse, exchange_evidence
    from svc.embedding.site import NotarySite, caller_id
    from svc.embedding.workload import PqRoots, Workload
else:
    __getattr__ = exports(
        __name__,
        {
            "agent": "HttpAgent",
            "errors": "ArgumentInvalid EmbeddingError",
            "pipe": "PipeEndpoint",
            "response": "ExchangeEvidence StreamedResponse VerifiedResponse exchange_evidence",
            "site": "NotarySite caller_id",
            "workload": "PqRoots Workload",
        },
    )

__all__ = [
    "ArgumentInvalid",
    "EmbeddingError",
    "ExchangeEvidence",
    "HttpAgent",
    "NotarySite",
    "PipeEndpoint",
    "PqRoots",
    "StreamedResponse",
    "VerifiedResponse",
    "Workload",
    "caller_id",
    "exchange_evidence",
]
