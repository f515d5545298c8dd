"""The bounds that protect a process, as the code has them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from docs.generator.pages import table
from svc.identity import bundle, documents, svid, verification
from svc.notary import envelope, generation, pqexchange, pqproof, statement, x5c
from svc.notary.receipt import REDACTED_ALWAYS
from svc.proxy.config import MAX_RECORDED_HEAD, LimitSettings, NotarySettings, TimeoutSettings
from svc.settings import MAX_FILE as MAX_CONFIGURATION
from svc.settings import show_duration, show_size
from svc.store.threaded import COMMIT_SECONDS, QUEUE_LIMIT
from svc.strictjson import MAX_DEPTH
from svc.telemetry.outlet import MAX_WAITING
from svc.telemetry.records import MAX_RECORD
from svc.transport import groups, limits
from svc.wire.http1.messages import MAX_INTERIM
from svc.workload.authority import pqendpoint
from svc.workload.authority.config import EntrySettings, KeySettings, PqSettings
from svc.workload.files import MAX_FILE as MAX_TRUSTED
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS


def bounds() -> str:
    """
    Write the table of what peers and files may use.

    Returns:
        The table.
    """
    rows = [
        ("a TLS handshake", _time(limits.HANDSHAKE_TIMEOUT), "`timeouts.handshake`"),
        ("handshakes at once, each listener", str(_of(LimitSettings, "handshakes")), "`limits.handshakes`"),
        ("connections that say nothing, each listener", str(_of(LimitSettings, "waiting")), "`limits.waiting`"),
        ("open connections, each listener", str(_of(LimitSettings, "connections")), "`limits.connections`"),
        ("head of a message", show_size(_of(LimitSettings, "head")), "`limits.head`"),
        ("the same where a receipt holds both heads", show_size(MAX_RECORDED_HEAD), "fixed"),
        ("header fields, and again trailer fields", str(_of(LimitSettings, "fields")), "`limits.fields`"),
        ("body of a request", "none", "`limits.body`"),
        ("interim answers before a response", str(MAX_INTERIM), "fixed"),
        ("a head that has begun", _time(_of(TimeoutSettings, "header")), "`timeouts.header`"),
        ("the next octet of a body", _time(_of(TimeoutSettings, "stream")), "`timeouts.stream`"),
        ("a whole exchange", _time(_of(TimeoutSettings, "exchange")), "`timeouts.exchange`"),
        (
            "receipts for one client identity",
            f"{_of(NotarySettings, 'receiptsPerSecond')} a second, {_of(NotarySettings, 'receiptsBurst')} at once",
            "`notary.receiptsPerSecond`, `receiptsBurst`",
        ),
        ("signatures that wait", str(_of(NotarySettings, "queue")), "`notary.queue`"),
        ("records that wait for the database, and again readings", str(QUEUE_LIMIT), "fixed"),
        ("a record's wait for its commit", _time(COMMIT_SECONDS), "fixed"),
        ("certificates of a chain in TLS", str(svid.MAX_CHAIN_CERTIFICATES), "fixed"),
        ("signing certificates of a path", str(verification.MAX_PATH), "fixed"),
        ("roots of a bundle", str(bundle.MAX_ANCHORS), "fixed"),
        ("an envelope", show_size(envelope.MAX_ENVELOPE), "fixed"),
        ("certificates in a signature", str(x5c.MAX_CERTIFICATES), "fixed"),
        ("depth of JSON", str(MAX_DEPTH), "fixed"),
        ("a bundle", show_size(documents.MAX_BUNDLE_OCTETS), "fixed"),
        ("a file of roots", show_size(MAX_TRUSTED), "fixed"),
        ("a configuration file", show_size(MAX_CONFIGURATION), "fixed"),
        ("a request to the post-quantum issuer", show_size(pqendpoint.MAX_REQUEST), "fixed"),
        ("challenges of the post-quantum issuer", str(pqexchange.MAX_CHALLENGES), "fixed"),
        ("a log record", show_size(MAX_RECORD), "fixed"),
        ("log records that wait for a reader", show_size(MAX_WAITING), "fixed"),
    ]
    return table(("what", "at most", "key"), rows)


def lifetimes() -> str:
    """
    Write the table of keys, credentials and their times.

    Returns:
        The table.
    """
    rows = [
        ("SVID of `svc-authority`", _time(_of(EntrySettings, "ttl")), "renewed at half of it; `entries[].ttl`"),
        ("JWT-SVID", _time(_of(EntrySettings, "jwtTtl")), "`entries[].jwtTtl`"),
        ("root of `svc-authority`", _time(_of(KeySettings, "caTtl")), "succeeded at half of it; `keys.caTtl`"),
        ("post-quantum root", _time(_of(PqSettings, "rootTtl")), "`pqIssuer.rootTtl`"),
        ("post-quantum leaf", "its SVID's", "a new key for each SVID"),
        ("challenge for a leaf", _time(pqexchange.CHALLENGE_TTL), "used once"),
        ("proof of a leaf request", f"{_time(pqproof.PROOF_LEEWAY)} around now", "fixed"),
        ("clocks of signer and verifier", f"{_time(statement.CLOCK_LEEWAY)} apart", "fixed"),
        (
            "connections under credentials that end",
            f"asked to leave at {generation._RENEW_SHARE:.0%}, cut {_time(generation._CUT_BEFORE)} before the end,"
            f" not before {generation._CUT_SHARE:.0%}",
            "fixed",
        ),
        ("an identity that is withdrawn", f"ends after {_time(WITHDRAWAL_GRACE_SECONDS)}", "`withdrawalGrace`"),
        ("receipts", _time(_of(NotarySettings, "retention")), "`notary.retention`"),
    ]
    return table(("what", "time", "how it is set"), rows)


def agreement() -> str:
    """
    Write which key agreement groups are spoken.

    Returns:
        One line for each policy.
    """
    hybrid, classical = ", ".join(groups.HYBRID_GROUPS), ", ".join(groups.CLASSICAL_GROUPS)
    return (
        f"- `keyExchange: default`: {hybrid}; where a peer has none of them {classical}.\n"
        f"- `keyExchange: require`: {hybrid} alone.\n"
    )


def redacted() -> str:
    """
    Write which header values never enter a receipt.

    Returns:
        One line.
    """
    return f"{', '.join(f'`{name}`' for name in sorted(REDACTED_ALWAYS))}\n"


def _of(model: Any, key: str) -> Any:
    return model.model_fields[key].default


def _time(span: float | timedelta) -> str:
    return show_duration(span.total_seconds() if isinstance(span, timedelta) else span)
