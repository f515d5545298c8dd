"""
Problem documents (RFC 9457): why a proxy answered instead of its application.

Owns which documents are accepted as one, and what a user can do about each code. A problem document is an unsigned
claim of the peer that TLS verified: it explains a failure and never decides one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc import naming
from svc.client.errors import ProxyAnswered
from svc.client.exchange import ExchangeResult
from svc.errors import SvcError, printable
from svc.notary.access import PROBLEM_TYPE_PREFIX
from svc.notary.errors import LevelMismatch, StatementMissing
from svc.strictjson import JsonRefused, loads_object
from svc.wire.http1 import ResponseHead

#: The largest body that is read as a problem document; those of the proxy have about 150 octets.
MAX_PROBLEM: Final = 64 * 1024
#: A problem document is one object; details of other makers may hold a little more.
_DEPTH: Final = 8
_WORKLOAD_ID: Final = naming.HEADER_WORKLOAD_ID.lower().encode("ascii")
_CODE: Final = re.compile(r"[a-z_]{1,64}")
_NOTARY_UNAVAILABLE: Final = (
    "its database takes no records or its credentials ran out: /readyz at its adminAddr says which, and why"
)
_NOT_UNDERSTOOD: Final = (
    "the request is not one that it accepts: its log has svc.proxy.request.rejected with the defect"
)
_APPLICATION: Final = "the application behind the proxy does not answer as it must: look at its log and the proxy's"
_VERSIONS: Final = "something on the way changes the Svc-* fields, or this svc and the proxy are of different versions"

#: What to do about each code; {client} is our own identity, {server} that of the proxy.
_ADVICE: Final = {
    "policy_deny": "its policy does not admit {client}: admit it in the section policy of the proxy of {server}",
    "path_ambiguous": "its policies look at paths, and this one has several readings: send it without encoded or "
    "doubled slashes, dot segments, backslashes and parameters (;)",
    "host_ambiguous": "its policies look at hosts, and this one has several readings: send a plain name, or an address "
    "in its usual form",
    "notary_unavailable": _NOTARY_UNAVAILABLE,
    "identity_withdrawn": "the Workload API took the identity of the proxy of {server} away: its registration entry",
    "credentials_expired": "the SVID of the proxy of {server} has ended and was not renewed: its readyz says why",
    "notary_rate": "{client} asks for more records than {server} can make beside those of others, or than"
    " notary.receiptsPerSecond and recordOctetsPerSecond allow, or for more than 4 lists of receipts at a time",
    "replayed": "the nonce was used before: send it again, each request has a new one; if it stays, "
    "something on the way sends requests twice",
    "level_invalid": _VERSIONS,
    "nonce_malformed": _VERSIONS,
    "record_too_large": "send a smaller head: the certificate chains of {server} leave no room for its record",
    "trace_ended": "TRACE with Max-Forwards 0 ends at the proxy of {server}: send a higher number",
    "body_too_large": "the request is larger than limits.body of the listener: send less, or raise it there",
    "request_timeout": "the request did not arrive in time: timeouts.header and timeouts.stream of the listener",
    "upstream_unreachable": "the application behind the proxy is down, or its upstream names the wrong address",
    "upstream_closed": _APPLICATION,
    "upstream_malformed": _APPLICATION,
    "upstream_identity_refused": "the proxy refuses the SVID of the peer behind it: its log says why",
    "upstream_unverified": "the peer behind the proxy did not prove what its listener requires: its log says why",
    "own_svid_refused": "the peer behind the proxy refuses the SVID of the proxy: the log of the peer says why",
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
    "not_found": "its notary has nothing there for {client}: a receipt is given to the client of the exchange, the "
    "workload itself and notary.readers",
    "id_malformed": "write the identifier as a report, Svc-Workload-ID or a receipt shows it",
    "method_not_allowed": "use GET or HEAD for what the notary serves",
}
_OTHER_ADVICE: Final = "look for {code} in the log of the proxy of {server}"
_AGAIN: Final = "; this may pass: ask again in a moment"


@dataclass(frozen=True, slots=True)
class Problem:
    """
    The unverified problem document of a proxy, with status and reason phrase of the response.

    Args:
        code: the reason, of ``a`` to ``z`` and ``_``.
        retryable: whether the same request may succeed later.
    """

    status: int
    phrase: str
    code: str
    retryable: bool

    def advice(self, client: object, server: object) -> str:
        """What to do, given our own identity and that of the proxy."""
        text = _ADVICE.get(self.code, _OTHER_ADVICE).format(client=client, server=server, code=self.code)
        return text + _AGAIN if self.retryable else text

    def to_json(self) -> dict[str, object]:
        """The member ``problem`` of the JSON object: the claim, marked as not verified."""
        return {"status": self.status, "code": self.code, "retryable": self.retryable, "verified": False}


class LevelNotNamed(LevelMismatch):
    """the level {asked} was asked for, but the answer names no notarization level"""

    hint = (
        "an answer of the proxy itself may name none: svc curl --validate=false -i shows it; "
        "else the listener gives no level"
    )


def read_problem(head: ResponseHead, body: bytes) -> Problem | None:
    """
    Read a response as a problem document of a proxy.

    Returns:
        None for whatever is not exactly one: another media type, no error status, a type, code and status that do not
        agree, or no strict JSON of :data:`MAX_PROBLEM` octets at most.
    """
    types = head.values(b"content-type")
    if head.status < 400 or len(types) != 1:
        return None
    media_type = types[0].partition(b";")[0].strip().lower()
    if media_type != naming.MEDIA_TYPE_PROBLEM.encode("ascii"):
        return None
    try:
        document = loads_object(body, max_bytes=MAX_PROBLEM, max_depth=_DEPTH)
    except JsonRefused:  # no problem document; the failure itself is reported all the same
        return None
    code, status = document.get("code"), document.get("status")
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return None
    if document.get("type") != f"{PROBLEM_TYPE_PREFIX}{code}" or type(status) is not int or status != head.status:
        return None
    return Problem(head.status, head.phrase.decode("latin-1"), code, document.get("retryable") is True)


def find_problem(result: ExchangeResult, body: bytes) -> Problem | None:
    """
    Whether a proxy answered instead of its application, and why.

    Args:
        body: the body of the response; of one beyond :data:`MAX_PROBLEM` at least one octet more than that.

    Returns:
        A problem only where nothing failed, or where the response has no statement or not the level.
    """
    if result.response is None:
        return None
    if result.error is not None:
        if result.peer is None or not isinstance(result.error, LevelMismatch | StatementMissing):
            return None
        if isinstance(result.error, StatementMissing) and result.response.head.values(_WORKLOAD_ID):
            return None  # it names a statement, so a fault that was injected is the cause
    return read_problem(result.response.head, body)


def claim_remark(result: ExchangeResult) -> str:
    """The remark that names who claims the cause."""
    if result.peer is None:
        return "that cause is an unverified claim received over plain http"
    return f"that cause is an unverified claim of {result.peer.svid.spiffe_id}, the peer that TLS verified"


def problem_notice(result: ExchangeResult, problem: Problem) -> tuple[str, str]:
    """Sentence and hint for a response of the proxy itself that passed."""
    peer = result.peer
    client, server = ("this client", "this server") if peer is None else (peer.own_svid.spiffe_id, peer.svid.spiffe_id)
    return f"the proxy answered {status_text(problem.status, problem.phrase)}", problem.advice(client, server)


def explained_error(result: ExchangeResult, problem: Problem | None) -> SvcError | None:
    """The error of an exchange, explained by the problem document where there is one; the reason stays."""
    error = result.error
    if error is None or problem is None or result.peer is None:
        if isinstance(error, LevelMismatch) and error.evidence.get("answered") is None:
            return LevelNotNamed(**error.evidence)
        return error
    evidence = {
        "answer": status_text(problem.status, problem.phrase),
        "code": problem.code,
        "advice_text": problem.advice(result.peer.own_svid.spiffe_id, result.peer.svid.spiffe_id),
    }
    if isinstance(error, LevelMismatch):
        return ProxyAnswered("level_mismatch", asked=error.evidence["asked"], **evidence)
    return ProxyAnswered("statement_missing", **evidence)


def status_text(status: int, phrase: str) -> str:
    """Format a status, for example ``403 Forbidden``."""
    return printable(f"{status} {phrase}".strip(), 80)
