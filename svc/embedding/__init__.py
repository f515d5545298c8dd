"""
For programs that embed: a workload with its endpoints, and the notary before an existing site.

``Workload`` is the identity of the program, ``NotarySite`` serves a ``twisted.web`` site with statements and receipts;
the packages below are there for those who need other parts. Endpoint strings that begin with ``spiffe:`` come from
``strings``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.embedding.client import (
        AnswerBroken,
        AnswerLate,
        AnswerTooLarge,
        ConnectionEnded,
        UrlUnsupported,
        VerifiedAnswer,
    )
    from svc.embedding.issuing import StatementLate
    from svc.embedding.pipe import PipeEndpoint
    from svc.embedding.site import CallerUnknown, NotarySite, caller_id
    from svc.embedding.workload import PqRoots, StatementNotIssued, Workload
else:
    __getattr__ = exports(
        __name__,
        {
            "client": "AnswerBroken AnswerLate AnswerTooLarge ConnectionEnded UrlUnsupported VerifiedAnswer",
            "issuing": "StatementLate",
            "pipe": "PipeEndpoint",
            "site": "CallerUnknown NotarySite caller_id",
            "workload": "PqRoots StatementNotIssued Workload",
        },
    )

__all__ = [
    "AnswerBroken",
    "AnswerLate",
    "AnswerTooLarge",
    "CallerUnknown",
    "ConnectionEnded",
    "NotarySite",
    "PipeEndpoint",
    "PqRoots",
    "StatementLate",
    "StatementNotIssued",
    "UrlUnsupported",
    "VerifiedAnswer",
    "Workload",
    "caller_id",
]
