"""Errors of a request and of its connection; what a verification refuses is in the packages that verify."""

from __future__ import annotations

from svc.errors import Reason, SvcError
from svc.notary.errors import ReceiptElsewhere as ReceiptElsewhere


class RequestInvalid(SvcError):
    """{problem}"""

    reason = "request_invalid"
    hint = "{suggestion}"

    def __init__(self, problem: str, suggestion: str) -> None:
        super().__init__(problem=problem, suggestion=suggestion)


class ExchangeFailed(SvcError):
    """the exchange with {server} failed"""

    reason = "network_error"
    reasons = {
        "malformed_response": Reason(
            "{server} does not answer in HTTP/1.1 as it must: {cause}",
            "is this an HTTP server, and is the scheme right?",
        ),
    }


class ConnectionLost(ExchangeFailed):
    """{server} closed the connection {moment}"""

    reason = "connection_closed"
    hint = "{advice_text}"

    def __init__(self, *, server: str, moment: str, advice_text: str = "look at the log of the server") -> None:
        super().__init__(server=server, moment=moment, advice_text=advice_text)


class RefusedByServer(ExchangeFailed):
    """{server} ended the TLS connection: {cause}"""

    reason = "handshake_failed"
    hint = "does the server trust the trust domain of our SVID, and does its policy admit us?"


class ServerUnexpected(ExchangeFailed):
    """the server at {address} is {spiffe_id}; expected {expected}"""

    reason = "identity_unexpected"
    hint = "is the address right, and is this the server that you mean?"


class BrokerFailed(SvcError):
    """the subscription at the broker {server} failed"""

    reason = "mqtt_broker_failed"
    hint = "look at the log of the broker"
    reasons = {
        "mqtt_connection_refused": Reason(
            "the broker {server} refuses the connection: {answer}",
            "the log of the broker says why; user name and password go into the URL, or into SVC_MQTT_USERNAME and "
            "SVC_MQTT_PASSWORD",
        ),
        "mqtt_subscription_refused": Reason(
            "the broker {server} refuses the subscription to {filters}: {answer}",
            "the broker must grant this user the topics; SVC_ARTIFACT_PREFIX names another prefix of them",
        ),
        "mqtt_broker_invalid": Reason(
            "the broker {server} broke MQTT: {defect}", "is this an MQTT broker, and is the scheme right?"
        ),
        "mqtt_broker_closed": Reason(
            "the broker {server} closed the connection before it granted the subscription{cause}",
            "does it serve TLS on this port, or ask for client certificates? its log says why",
        ),
        "mqtt_broker_silent": Reason(
            "the broker {server} has not answered for {seconds} s",
            "the broker is stopped or overloaded, or the network between is gone",
        ),
        "mqtt_tls_failed": Reason(
            "TLS with the broker {server} failed: {detail}",
            "does it serve TLS on this port? mqtt:// is without TLS, and client certificates are not supported",
        ),
    }


class ProxyAnswered(SvcError):
    """the proxy answered {answer}: {code}"""

    reason = "proxy_answered"
    hint = "{advice_text}"
    reasons = {
        "statement_missing": Reason(
            "the response carries no workload statement: the proxy answered {answer}: {code}", "{advice_text}"
        ),
        "level_mismatch": Reason(
            "the level {asked} was asked for, but the proxy answered {answer}: {code}", "{advice_text}"
        ),
    }


class EvidenceNotSaved(SvcError):
    """{path} cannot be written: {detail}"""

    reason = "file_not_written"
    hint = "choose another path"
    path: str


class EvidenceExists(EvidenceNotSaved):
    """{path} exists already and is not overwritten"""

    reason = "file_exists"
    hint = "evidence is never replaced: choose another path, or move the old file away"
