"""What a peer can do wrong in HTTP/1.1; each error is a response with its status or the end of the connection."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class RemoteProtocolError(SvcError):
    """the peer broke the protocol"""

    reason = "protocol_error"
    http_status = 400
    reasons = {
        "malformed_message": Reason("the message is malformed: {defect}"),
        "method_unknown": Reason("the request method is not a method of HTTP", http_status=501),
        "method_refused": Reason("the method {method} is not accepted by a reverse proxy", http_status=501),
        "version_refused": Reason("the version is HTTP/{version}, accepted are 1.0 and 1.1", http_status=505),
        "host_invalid": Reason("the request needs exactly one valid Host field: {defect}"),
        "target_invalid": Reason("the request target is not acceptable: {defect}"),
        "field_refused": Reason("the field {field} is not acceptable: {defect}"),
        "transfer_coding_refused": Reason("the only accepted transfer coding is chunked", http_status=501),
        "head_too_large": Reason("the head is larger than {limit} octets", http_status=431),
        "too_many_fields": Reason("the message has more than {limit} fields", http_status=431),
        "too_much_held_back": Reason("more than {limit} octets followed a request with Upgrade before its response"),
        "too_many_interim": Reason("more than {limit} interim responses came before the final one"),
        "truncated": Reason("the connection ended in the middle of a message"),
    }
