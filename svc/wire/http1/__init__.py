"""
HTTP/1.1 messages from bytes: llhttp in strict mode, and what llhttp lets pass judged here (RFC 9112).

``RequestParser`` reads what a client sends, ``ResponseParser`` what an upstream connection answers to one request. Both
turn bytes into events and never raise for what a peer sends: a defect is the event ``Refused``, always the last one.
Limits are constructor arguments. However the octets are cut into reads, the events are the same once adjacent pieces
of a body are joined.

A connection's bytes become, in this order::

    requests:   (RequestHead, bytes*, End)*  [Refused]
    responses:  (Interim)* ResponseHead, bytes*, End  [Excess | Refused]
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
    Limits,
    Refused,
    RequestHead,
    ResponseHead,
)
from svc.wire.http1.requests import RequestParser
from svc.wire.http1.responses import ResponseParser

__all__ = [
    "DEFAULT_MAX_FIELDS",
    "DEFAULT_MAX_HEAD",
    "MAX_INTERIM",
    "End",
    "Event",
    "Excess",
    "Head",
    "Interim",
    "Limits",
    "Refused",
    "RequestHead",
    "RequestParser",
    "ResponseHead",
    "ResponseParser",
    "is_token",
]
