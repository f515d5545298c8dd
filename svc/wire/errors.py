"""What a peer can do wrong on the wire, one class a reason; each is an answer or the end of the connection."""

from __future__ import annotations

from svc.errors import SvcError


class RemoteProtocolError(SvcError):
    """the peer broke the protocol"""

    reason = "protocol_error"
    http_status = 400


class MalformedMessage(RemoteProtocolError):
    """the message is malformed: {defect}"""

    reason = "malformed_message"


class MethodUnknown(RemoteProtocolError):
    """the request method is not one that HTTP knows"""

    reason = "method_unknown"
    http_status = 501


class MethodRefused(RemoteProtocolError):
    """the method {method} does not pass a proxy in front of one application"""

    reason = "method_refused"
    http_status = 501


class VersionRefused(RemoteProtocolError):
    """the message speaks HTTP/{version}, accepted are 1.0 and 1.1"""

    reason = "version_refused"
    http_status = 505


class HostInvalid(RemoteProtocolError):
    """the request needs exactly one valid Host field: {defect}"""

    reason = "host_invalid"


class TargetInvalid(RemoteProtocolError):
    """the request target is not acceptable: {defect}"""

    reason = "target_invalid"


class FieldRefused(RemoteProtocolError):
    """the field {field} is not acceptable: {defect}"""

    reason = "field_refused"


class TransferCodingRefused(RemoteProtocolError):
    """the only accepted transfer coding is chunked"""

    reason = "transfer_coding_refused"
    http_status = 501


class HeadTooLarge(RemoteProtocolError):
    """the head is larger than {limit} octets"""

    reason = "head_too_large"
    http_status = 431


class TooManyFields(RemoteProtocolError):
    """the message has more than {limit} fields"""

    reason = "too_many_fields"
    http_status = 431


class UpgradeWithBody(RemoteProtocolError):
    """a request that asks for another protocol cannot carry a body"""

    reason = "upgrade_with_body"


class TooMuchHeldBack(RemoteProtocolError):
    """more than {limit} octets followed a request for another protocol before its answer"""

    reason = "too_much_held_back"


class TooManyInterim(RemoteProtocolError):
    """more than {limit} interim responses came before the final one"""

    reason = "too_many_interim"


class Truncated(RemoteProtocolError):
    """the connection ended in the middle of a message"""

    reason = "truncated"
