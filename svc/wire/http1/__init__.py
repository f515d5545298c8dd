"""
HTTP/1.1 messages from bytes: llhttp in strict mode, and further checks of what llhttp accepts (RFC 9112).

``RequestParser`` reads the requests of a client connection, ``ResponseParser`` the responses of an upstream connection.
Both turn bytes into events and never raise for what a peer sends: a defect is the event ``MessageRefused``, always the
last one. However the bytes are split into reads, the events are the same once adjacent pieces of a body are joined.

The bytes of a connection become, in this order::

    requests:   (RequestHead, bytes*, End)*  [MessageRefused]
    responses:  (Interim)* ResponseHead, bytes*, End  [Excess | MessageRefused]
"""

from svc.wire.fields import is_token
from svc.wire.http1.messages import (
    DEFAULT_MAX_FIELDS,
    DEFAULT_MAX_HEAD,
    MAX_INTERIM,
    End,
    Event,
    Excess,
    Head,
    Interim,
    MessageLimits,
    MessageRefused,
    RequestHead,
    ResponseHead,
)
from svc.wire.http1.parser import SLICE_LINES, SLICE_OCTETS
from svc.wire.http1.requests import RequestParser
from svc.wire.http1.responses import ResponseParser

__all__ = [
    "DEFAULT_MAX_FIELDS",
    "DEFAULT_MAX_HEAD",
    "MAX_INTERIM",
    "SLICE_LINES",
    "SLICE_OCTETS",
    "End",
    "Event",
    "Excess",
    "Head",
    "Interim",
    "MessageLimits",
    "MessageRefused",
    "RequestHead",
    "RequestParser",
    "ResponseHead",
    "ResponseParser",
    "is_token",
]
