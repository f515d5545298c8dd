"""
What goes wrong between ``svc curl`` and a server, before anything is judged.

Owns the sentences for names, connections, answers and limits. What a handshake refuses comes from
:mod:`svc.transport.errors`, what a verification refuses from :mod:`svc.notary.refusals`.
"""

from __future__ import annotations

from svc.cli.errors import CliError


class NetworkError(CliError):
    """the exchange with {server} failed"""

    reason = "network_error"


class NameUnresolved(NetworkError):
    """the name {host} cannot be resolved"""

    reason = "name_unresolved"
    hint = "check the spelling, and that DNS works here"


class ConnectionRefused(NetworkError):
    """{server} refuses the connection"""

    reason = "connection_refused"
    hint = "is the service running, and is the port right?"


class ConnectFailed(NetworkError):
    """no connection to {server}: {detail}"""

    reason = "connect_failed"
    hint = "check the address, the route to it and any firewall in between"


class ConnectTimeout(NetworkError):
    """no connection to {server} within {seconds} s"""

    reason = "connect_timeout"
    hint = "check the address, the route to it and any firewall in between"


class ConnectionLost(NetworkError):
    """{server} closed the connection {moment}"""

    reason = "connection_closed"
    hint = "{advice_text}"

    def __init__(self, *, server: str, moment: str, advice_text: str = "look at the log of the server") -> None:
        super().__init__(server=server, moment=moment, advice_text=advice_text)


class RefusedByServer(NetworkError):
    """{server} ended the TLS connection: {cause}"""

    reason = "handshake_failed"
    hint = "does the server trust the trust domain of our SVID, and does its policy admit us?"


class AnswerRefused(NetworkError):
    """{server} does not answer in HTTP/1.1 as it must: {cause}"""

    reason = "malformed_response"
    hint = "is this an HTTP server, and is the scheme right?"


class BodyTooLarge(NetworkError):
    """the body of the answer is larger than {limit} octets"""

    reason = "body_too_large"
    hint = "raise --max-body, which is 1GiB unless given"


class SpoolFailed(NetworkError):
    """the answer cannot be kept back until it is verified: {detail}"""

    reason = "spool_failed"
    hint = "free some space in the folder for temporary files (TMPDIR)"


class MaxTimeExceeded(NetworkError):
    """the exchange was not complete within {seconds} s"""

    reason = "max_time"
    hint = "raise --max-time, or leave it out"


class StillWaiting(MaxTimeExceeded):
    """the exchange was not complete within {seconds} s: {missing}"""


class IdentityNotPinned(CliError):
    """no server identity was named, and --require-pinned-id insists on one"""

    reason = "identity_not_pinned"
    hint = "name it with --expect-id or SVC_EXPECT_ID"
