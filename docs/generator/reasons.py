"""Every reason with which something fails: its sentences, its codes, and what to do."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import svc
from docs.generator.pages import PageBroken, table
from svc.errors import SvcError
from svc.telemetry.labels import denial
from svc.wire.errors import RemoteProtocolError

#: What to do about errors whose class has no hint: those that a person meets as a word in a log or an answer.
ADVICE: dict[str, str] = {
    "alpn_refused": "the peer must offer `http/1.1`, with MQTT `mqtt`, or no protocol at all",
    "answer_not_taken": "the client reads too slowly, or not at all; `timeouts.stream` says how long it may",
    "broker_refused": "the more precise reason of the same record",
    "caller_refused": "ask as the workload that the leaf is for",
    "caller_unknown": "serve the notary's pages through a notary site; ask the authority from this machine",
    "condition_unknown": "a defect of svc: report it",
    "config_invalid": "each line names a key, its value and what was expected; `--check-config` shows all",
    "connection_closed": "try again; the log of the server says why it closed",
    "connection_limit": "raise `limits.connections` of the listener, or add replicas",
    "credentials_unusable": "the issuer gives keys or certificates that OpenSSL refuses: use P-256 or P-384",
    "draining": "start the process anew; a drain is final",
    "failed": "the more precise reason of the same line",
    "field_refused": "correct the client: RFC 9110, section 5",
    "file_missing": "check the path",
    "group_not_allowed": "upgrade the peer's TLS library, or choose another `keyExchange`",
    "handshake_limit": "raise `limits.handshakes`; many at once may be an attack, or a restart of all clients",
    "head_too_large": "send fewer or shorter fields, or raise `limits.head`",
    "host_invalid": "correct the client: exactly one Host (RFC 9112, section 3.2)",
    "interrupted": "Ctrl-C or a signal ended the command",
    "jwt_svid_invalid": "fetch a new token; check its audience and the clocks",
    "level_invalid": "correct the client's `Svc-Notarization-Level`",
    "malformed_message": "correct the sender: RFC 9112",
    "method_not_allowed": "use GET or HEAD",
    "method_refused": "CONNECT and TRACE are for proxies that clients choose",
    "method_unknown": "correct the client",
    "mqtt_alias_unknown": "correct the client: it has to send the topic with the alias first",
    "mqtt_authentication_method": "connect without an authentication method; a certificate or a password is enough",
    "mqtt_client_id_invalid": "choose a shorter client identifier, or ask for a clean session",
    "mqtt_keep_alive": "the client or the network between is gone; or ask for a longer keep alive",
    "mqtt_malformed_packet": "correct the client",
    "mqtt_not_authorized": "look at `acl` of the listener",
    "mqtt_packet_too_large": "send smaller messages, or raise the limit",
    "mqtt_protocol_error": "correct the client",
    "mqtt_quota_exceeded": "use fewer of them in one packet",
    "mqtt_receive_maximum": "send PUBREL for each PUBREC, and respect the Receive Maximum of the broker",
    "mqtt_session_owned": "give each workload client identifiers of its own",
    "mqtt_topic_alias_invalid": "respect the Topic Alias Maximum of the broker",
    "mqtt_unencodable": "a defect of svc: report it",
    "mqtt_connect_timeout": "correct the client: CONNECT comes first, and at once",
    "mqtt_version_unsupported": "use MQTT 3.1.1 or 5.0",
    "network_error": "the more precise reason of the same line",
    "no_own_svid": "make a registration entry that matches uid, gid and executable of this process",
    "notary_answer": "look up the code of the answer in this table",
    "notary_rate": "try again in a few seconds",
    "notary_refused": "the more precise reason of the same line",
    "output_closed": "nothing, where the reader has seen enough (`| head`)",
    "output_failed": "check the disk that it leads to, its free space and its permissions",
    "peer_not_verified": "embed this behind mutual TLS of `svc.transport`",
    "pq_issuer_error": "look at the log of the post-quantum issuer",
    "pq_issuer_malformed": "does `notary.pqIssuer` name a post-quantum issuer, of the own trust domain?",
    "pq_issuer_refused": "look at the log of the issuer (`svc.authority.refused`)",
    "pq_issuer_timeout": "is the issuer overloaded, or is a firewall in between?",
    "protocol_error": "the more precise reason of the same record",
    "proxy_answered": "the more precise reason of the same line",
    "receipt_refused": "the more precise reason of the same line",
    "replayed": "choose 16 new random octets for each request",
    "request_invalid": "the same line says what was expected",
    "request_timeout": "the client does not finish its request: `timeouts.header`, `timeouts.stream`",
    "socket_unusable": "is the folder there, and may this user write into it?",
    "source_stopped": "nothing: the process was ended while it waited",
    "statement_refused": "the more precise reason of the same line",
    "target_invalid": "correct the client: RFC 9112, section 3.2",
    "too_many_fields": "send fewer fields, or raise `limits.fields`",
    "too_many_interim": "correct the application: it sends 1xx answers without end",
    "too_much_held_back": "correct the client: it must wait for the answer to its upgrade",
    "transfer_coding_refused": "correct the sender: `chunked` is the only coding",
    "transport_error": "the more precise reason of the same line",
    "truncated": "look at the log of the other side at that second",
    "update_malformed": "look at the server of the Workload API; the last good credentials serve until they end",
    "upstream_closed": "look at the log of the upstream; it closed a connection without an answer",
    "upstream_identity_refused": "is `upstream` the right address, and `peer` the right identity?",
    "upstream_malformed": "correct the application; the record says how it breaks HTTP",
    "upstream_timeout": "is the application overloaded? `timeouts.connect`, `timeouts.response`, `timeouts.stream`, "
    "`timeouts.exchange`",
    "upstream_unreachable": "does the application run, and is `upstream` right?",
    "usage": "the same line says what was expected; `--help` shows everything",
    "version_refused": "use HTTP/1.1",
    "waiting_limit": "something opens connections and says nothing: a scan, or a load balancer without PROXY protocol",
    "workload_api_error": "the more precise reason of the same line",
    "workload_api_stream": "nothing, if it comes back; else look at the server of the Workload API",
}
_WORDS = ("svid_invalid", "policy_deny")


class Entry(NamedTuple):
    """One way to fail: a class, or a row of a class's table."""

    kind: type[SvcError]
    sentence: str
    hint: str
    http_status: int


def entries() -> dict[str, list[Entry]]:
    """
    Find every error of the product.

    Returns:
        The entries by their reason, sorted by reason and class; test doubles are left out.
    """
    for module in pkgutil.walk_packages(svc.__path__, "svc."):
        if not module.name.startswith("svc.testing"):
            importlib.import_module(module.name)
    found: dict[str, list[Entry]] = defaultdict(list)
    waiting = [SvcError]
    for each in waiting:
        waiting.extend(other for other in each.__subclasses__() if other not in waiting)
        if each.__module__.startswith("svc.") and not each.__module__.startswith("svc.testing"):
            found[each.reason].append(Entry(each, _sentence(each.__doc__ or ""), each.hint, each.http_status))
            for reason, row in each.__dict__.get("reasons", {}).items():
                status = each.http_status if row.http_status is None else row.http_status
                found[reason].append(Entry(each, row.sentence, row.hint, status))
    return {
        reason: sorted(found[reason], key=lambda entry: (entry.kind.__module__, entry.kind.__name__))
        for reason in sorted(found)
    }


def reasons(advice: Mapping[str, str] = ADVICE) -> str:
    """
    Write the table of reasons.

    Args:
        advice: what to do, in place of hints of classes or where there are none.

    Returns:
        Its lines.

    Raises:
        PageBroken: nothing says what to do about a reason, or something does about one that there is not.
    """
    known = entries()
    if stray := set(advice) - set(known):
        raise PageBroken(f"docs/generator/reasons.py advises on what is no reason: {', '.join(sorted(stray))}")
    rows = []
    for reason, found in known.items():
        word = denial(reason)
        rows.append(
            (
                f"`{reason}`",
                f"`{word}`" if word in _WORDS else "",
                "; or: ".join(dict.fromkeys(each.sentence for each in found)),
                ", ".join(str(status) for status in sorted({each.http_status for each in found})),
                ", ".join(str(status) for status in sorted({each.kind.exit_status for each in found})),
                _advice(advice, reason, found),
            )
        )
    return table(("reason", "metric word", "sentence", "HTTP", "exit", "what to do"), rows)


def _sentence(docstring: str) -> str:
    return " ".join(docstring.strip().split("\n\n")[0].split())


def _advice(advice: Mapping[str, str], reason: str, found: list[Entry]) -> str:
    hints = dict.fromkeys(each.hint for each in found if each.hint and "advice_text" not in each.hint)
    text = advice.get(reason) or "; or: ".join(hints)
    if not text and all(issubclass(each.kind, RemoteProtocolError) for each in found):
        return "correct the other side: it breaks the protocol"
    if not text:
        raise PageBroken(
            f"nothing says what to do about {reason}: give it a hint, there or in docs/generator/reasons.py"
        )
    return text
