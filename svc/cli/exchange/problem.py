"""
The problem document of an answer that did not pass (RFC 9457): why a proxy answered in place of its application.

Owns which documents are believed to be one, and what a person can do about each code. What it says is the word of the
peer that TLS verified, and of nobody else: no signature backs it, so it explains a failure and never decides one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc import naming
from svc.cli.exchange.conduct import Outcome
from svc.cli.exchange.spool import Spool
from svc.errors import SvcError, printable
from svc.notary.access import PROBLEM_TYPE_PREFIX
from svc.notary.refusals import LevelMismatch, StatementMissing
from svc.strictjson import JsonRefused, loads_object
from svc.wire.http1 import ResponseHead

#: The largest body that is read as a problem document; those of the proxy have about 150 octets.
MAX_PROBLEM: Final = 64 * 1024
#: A problem document is one object; details of other makers may hold a little more.
_DEPTH: Final = 8
_WORKLOAD_ID: Final = naming.HEADER_WORKLOAD_ID.lower().encode("ascii")
_CODE: Final = re.compile(r"[a-z_]{1,64}")
_NOTARY_UNAVAILABLE: Final = (
    "its database takes no records (is its disk full?) or its credentials ran out: /readyz at its adminAddr says which"
)
_NOT_UNDERSTOOD: Final = (
    "the request is not one that it accepts: its log has svc.proxy.request.rejected with the defect"
)
_APPLICATION: Final = "the application behind the proxy does not answer as it must: look at its log and the proxy's"
_VERSIONS: Final = "something on the way changes the Svc-* fields, or this svc and the proxy are of different versions"

#: What to do about each code; {client} is our own identity, {server} that of the proxy.
_ADVICE: Final = {
    "policy_deny": "its policy does not admit {client}: admit it in the section policy of the proxy of {server}",
    "notary_unavailable": _NOTARY_UNAVAILABLE,
    "identity_withdrawn": "the Workload API took the identity of the proxy of {server} away: its registration entry",
    "notary_rate": "{client} asks for more signed receipts than notary.receiptsPerSecond and notary.queue allow",
    "replayed": "the nonce was used before: run the command again, each run has a new one; if it stays, "
    "something on the way sends requests twice",
    "level_invalid": _VERSIONS,
    "nonce_malformed": _VERSIONS,
    "body_too_large": "the request is larger than limits.body of the listener: send less, or raise it there",
    "request_timeout": "the request did not arrive in time: timeouts.header and timeouts.stream of the listener",
    "upstream_unreachable": "the application behind the proxy is down, or its upstream names the wrong address",
    "upstream_closed": _APPLICATION,
    "upstream_malformed": _APPLICATION,
    "upstream_identity_refused": "the peer behind the proxy is not the one that its key peer names",
    "upstream_timeout": "the application behind the proxy is slow or stuck: its log, and timeouts.connect, "
    "timeouts.response, timeouts.stream and timeouts.exchange of the listener",
    "method_refused": _NOT_UNDERSTOOD,
    "method_unknown": _NOT_UNDERSTOOD,
    "head_too_large": "the fields are larger than limits.head of the listener: send less, or raise it there",
    "too_many_fields": "there are more fields than limits.fields of the listener: send fewer, or raise it there",
    "host_invalid": _NOT_UNDERSTOOD,
    "target_invalid": _NOT_UNDERSTOOD,
    "field_refused": _NOT_UNDERSTOOD,
    "malformed_message": _NOT_UNDERSTOOD,
}
_OTHER_ADVICE: Final = "look for {code} in the log of the proxy of {server}"
_AGAIN: Final = "; this may pass: ask again in a moment"


@dataclass(frozen=True, slots=True)
class Problem:
    """
    What a proxy says about its own answer; not verified.

    Args:
        status: the status of the answer.
        phrase: its reason phrase.
        code: the reason, of ``a`` to ``z`` and ``_``.
        retryable: whether the same request may succeed later.
    """

    status: int
    phrase: str
    code: str
    retryable: bool

    def advice(self, client: object, server: object) -> str:
        """
        Say what to do.

        Args:
            client: our own identity.
            server: the identity of the proxy.

        Returns:
            One line.
        """
        text = _ADVICE.get(self.code, _OTHER_ADVICE).format(client=client, server=server, code=self.code)
        return text + _AGAIN if self.retryable else text

    def to_json(self) -> dict[str, object]:
        """
        Give the member ``problem`` of the JSON object.

        Returns:
            The claim, marked as not verified.
        """
        return {"status": self.status, "code": self.code, "retryable": self.retryable, "verified": False}


class LevelNotGiven(LevelMismatch):
    """the level {asked} was asked for, but the proxy answered {answer}: {code}"""

    hint = "{advice_text}"


class LevelNotNamed(LevelMismatch):
    """the level {asked} was asked for, but the answer names no notarization level"""

    hint = "an answer of the proxy itself may name none: --validate=false -i shows it; else the listener gives no level"


class NoStatementGiven(StatementMissing):
    """the response carries no workload statement: the proxy answered {answer}: {code}"""

    hint = "{advice_text}"


def read_problem(head: ResponseHead, body: bytes) -> Problem | None:
    """
    Read an answer as a problem document of a proxy.

    Args:
        head: the head of the answer.
        body: its whole body.

    Returns:
        The problem; None for whatever is not exactly one: another media type, no error status, another status, type or
        code than each other, or no strict JSON of :data:`MAX_PROBLEM` octets at most.
    """
    types = head.values(b"content-type")
    if head.status < 400 or len(types) != 1:
        return None
    media_type = types[0].partition(b";")[0].strip().lower()
    if media_type != naming.MEDIA_TYPE_PROBLEM.encode("ascii"):
        return None
    try:
        document = loads_object(body, max_bytes=MAX_PROBLEM, max_depth=_DEPTH)
    except JsonRefused:  # no document, so nothing is known of a cause; the failure itself is told all the same
        return None
    code, status = document.get("code"), document.get("status")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return None
    if document.get("type") != f"{PROBLEM_TYPE_PREFIX}{code}" or type(status) is not int or status != head.status:
        return None
    return Problem(head.status, head.phrase.decode("latin-1"), code, document.get("retryable") is True)


def problem_of(outcome: Outcome, spool: Spool) -> Problem | None:
    """
    Find the problem that explains a failure.

    Args:
        outcome: what the exchange came to.
        spool: the body of its answer.

    Returns:
        The problem where the answer gave no statement or not the level, and the peer that TLS verified says why in a
        problem document; else None.
    """
    if outcome.answer is None or outcome.peer is None or spool.size > MAX_PROBLEM:
        return None
    if not isinstance(outcome.error, LevelMismatch | StatementMissing):
        return None
    if isinstance(outcome.error, StatementMissing) and outcome.answer.head.values(_WORKLOAD_ID):
        return None  # it names a statement, so a fault that was injected is the cause
    return read_problem(outcome.answer.head, b"".join(spool.pieces()))


def explained_failure(outcome: Outcome, problem: Problem | None) -> SvcError | None:
    """
    Say in the words of a person's question why an exchange failed; reason and exit status stay.

    Args:
        outcome: what the exchange came to.
        problem: what the proxy says.

    Returns:
        The error to show; None where nothing failed.
    """
    error = outcome.error
    if problem is None or outcome.peer is None:
        if isinstance(error, LevelMismatch) and error.evidence.get("answered") is None:
            return LevelNotNamed(**error.evidence)
        return error
    told = {
        "answer": status_text(problem.status, problem.phrase),
        "code": problem.code,
        "advice_text": problem.advice(outcome.peer.own_svid.spiffe_id, outcome.peer.svid.spiffe_id),
    }
    if isinstance(error, LevelMismatch):
        return LevelNotGiven(**error.evidence, **told)
    return NoStatementGiven(**told)


def status_text(status: int, phrase: str) -> str:
    """
    Write a status for people.

    Args:
        status: the status code.
        phrase: its reason phrase, as it came.

    Returns:
        For example ``403 Forbidden``.
    """
    return printable(f"{status} {phrase}".strip(), 80)
