"""The bounds that protect a process, as the code has them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from docs.generator.pages import table
from svc.authority.config import EntrySettings, KeySettings, PqSettings
from svc.envelope import envelope, x5c
from svc.identity import algorithms, bundle, constraints, documents, encoding, svid, verification
from svc.notary import beginnings, credentials, evidence, pqissuer, pqleaf, statement
from svc.notary.receipt import REDACTED_ALWAYS
from svc.notary.record_bound import RecordBound, largest_limit
from svc.pages import callers
from svc.proxy.config import NotarySettings
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.proxy.eviction import MOST_SHARES
from svc.proxy.http.notary_endpoint import MAX_SEARCHES
from svc.proxy.records.budget import MAX_CLIENTS
from svc.proxy.records.places import TOGETHER
from svc.proxy.records.room import SCARCE_OCTETS
from svc.settings import MAX_FILE as MAX_CONFIGURATION
from svc.settings import format_duration, format_size
from svc.shares import MAX_REMEMBERED
from svc.sqlite.threads import COMMIT_SECONDS
from svc.store.search import SEARCH_OCTETS, SEARCH_ROWS
from svc.store.threaded import READ_LIMIT, SEARCH_LIMIT
from svc.store.usage import MAX_HOLDERS
from svc.strictjson import MAX_DEPTH, MAX_NODES
from svc.telemetry.log_writer import MAX_WAITING
from svc.telemetry.records import MAX_RECORD
from svc.transport import chain_cache, groups, keyupdates, limits
from svc.wire.http1.messages import MAX_INTERIM
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
        ("identities looked at for an idle connection, where all are taken", str(MOST_SHARES), "fixed"),
        ("head and trailers of a message", format_size(_of(LimitSettings, "head")), "`limits.head`"),
        (
            "the same where records are made, with the usual redaction and number of fields",
            format_size(largest_limit("head", RecordBound(2**20, _of(LimitSettings, "fields")))),
            "fixed",
        ),
        ("fields of a message, trailers included", str(_of(LimitSettings, "fields")), "`limits.fields`"),
        ("body of a request", "none", "`limits.body`"),
        ("interim answers before a response", str(MAX_INTERIM), "fixed"),
        ("a head that has begun", _time(_of(TimeoutSettings, "header")), "`timeouts.header`"),
        ("the next octet of a body", _time(_of(TimeoutSettings, "stream")), "`timeouts.stream`"),
        ("a whole exchange", _time(_of(TimeoutSettings, "exchange")), "`timeouts.exchange`"),
        ("records in the database", "the disk", "`notary.maxBytes`"),
        ("free room from which on identities share it", f"10 %, at least {format_size(SCARCE_OCTETS)}", "fixed"),
        ("identities whose octets are known, those that hold most", str(MAX_HOLDERS), "fixed"),
        (
            "records in the queue to signer and writer, of one client identity alone",
            str(_of(NotarySettings, "queue")),
            "`notary.queue`",
        ),
        ("the same while several identities have records, which share them", str(TOGETHER), "fixed"),
        ("identities that count after their last record, for a second", str(MAX_REMEMBERED), "fixed"),
        ("records of one client identity", "none", "`notary.receiptsPerSecond`, `receiptsBurst`"),
        ("octets of these records", "none", "`notary.recordOctetsPerSecond`, `recordOctetsBurst`"),
        ("the wait for these before a refusal", _time(_of(NotarySettings, "rateWait")), "`notary.rateWait`"),
        ("identities whose rates are remembered", str(MAX_CLIENTS), "fixed"),
        ("readings that wait for the database", str(READ_LIMIT), "fixed"),
        (
            "lists of receipts that wait, and those of one client identity at a listener",
            f"{SEARCH_LIMIT}, {MAX_SEARCHES}",
            "fixed",
        ),
        ("records that one list reads", f"{SEARCH_ROWS}, {format_size(SEARCH_OCTETS)}", "fixed"),
        (
            "octets of a request body that are kept until its receipt is verified, and of all of an outbound listener",
            f"{format_size(beginnings.MAX_KEPT)}, {format_size(beginnings.MAX_KEPT_TOGETHER)}",
            "fixed",
        ),
        ("a record's wait for its commit", _time(COMMIT_SECONDS), "fixed"),
        ("certificates of a chain in TLS", str(svid.MAX_CHAIN_CERTIFICATES), "fixed"),
        ("signatures checked for one chain", str(verification.MAX_SIGNATURE_CHECKS), "fixed"),
        ("a certificate of a chain, without its signature", format_size(encoding.MAX_SIGNED_PART), "fixed"),
        (
            "the subject or issuer of a certificate",
            f"{format_size(encoding.MAX_NAME)}, {encoding.MAX_NAME_ATTRIBUTES} attributes",
            "fixed",
        ),
        ("DER elements in the extensions of a certificate", str(encoding.MAX_EXTENSION_ELEMENTS), "fixed"),
        ("the public exponent of an RSA key", f"{algorithms.MAX_RSA_EXPONENT_BITS} bits", "fixed"),
        ("comparisons of names with name constraints, one chain", str(constraints.MAX_NAME_COMPARISONS), "fixed"),
        (
            "cached verified chains, each listener",
            f"{chain_cache.MAX_CHAINS}, {format_size(chain_cache.MAX_OCTETS)}",
            "fixed",
        ),
        (
            "KeyUpdates of a TLS connection with their answers",
            f"{keyupdates.MAX_KEY_UPDATES} in {_time(keyupdates.KEY_UPDATE_SECONDS)}",
            "fixed",
        ),
        ("signing certificates of a path", str(verification.MAX_PATH), "fixed"),
        ("roots of a bundle", str(bundle.MAX_ANCHORS), "fixed"),
        ("an envelope", format_size(envelope.MAX_ENVELOPE), "fixed"),
        ("certificates in a signature", str(x5c.MAX_CERTIFICATES), "fixed"),
        ("depth of JSON", str(MAX_DEPTH), "fixed"),
        ("values and member names of a JSON document", str(MAX_NODES), "fixed"),
        ("the same of a bundle", str(documents.MAX_BUNDLE_NODES), "fixed"),
        ("an evidence file", format_size(evidence.MAX_EVIDENCE), "fixed"),
        ("a bundle", format_size(documents.MAX_BUNDLE_OCTETS), "fixed"),
        ("a file of roots", format_size(MAX_TRUSTED), "fixed"),
        ("a configuration file", format_size(MAX_CONFIGURATION), "fixed"),
        ("a request to the post-quantum issuer", format_size(callers.MAX_REQUEST), "fixed"),
        ("connections of the post-quantum issuer, each listener", _shared(callers.MAX_CONNECTIONS), "fixed"),
        ("challenges of the post-quantum issuer", _shared(pqissuer.MAX_CHALLENGES), "fixed"),
        ("a log record", format_size(MAX_RECORD), "fixed"),
        ("log records that wait for a reader", format_size(MAX_WAITING), "fixed"),
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
        ("challenge for a leaf", _time(pqissuer.CHALLENGE_TTL), "used once"),
        ("proof of a leaf request", f"{_time(pqleaf.PROOF_LEEWAY)} around now", "fixed"),
        ("clocks of signer and verifier", f"{_time(statement.CLOCK_LEEWAY)} apart", "fixed"),
        (
            "connections under credentials that end",
            f"asked to leave at {credentials._RENEW_SHARE:.0%}, cut {_time(credentials._CLOSE_BEFORE)} before the end,"
            f" not before {credentials._CLOSE_SHARE:.0%}",
            "fixed",
        ),
        ("an identity that is withdrawn", f"ends after {_time(WITHDRAWAL_GRACE_SECONDS)}", "`withdrawalGrace`"),
        ("receipts", _time(_of(NotarySettings, "retention")), "`notary.retention`"),
    ]
    return table(("what", "time", "how it is set"), rows)


def agreement() -> str:
    """
    Write the supported key agreement groups.

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


def _shared(count: int) -> str:
    return f"{count}, shared between callers"


def _time(span: float | timedelta) -> str:
    return format_duration(span.total_seconds() if isinstance(span, timedelta) else span)
