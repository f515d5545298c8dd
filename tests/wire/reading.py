"""Feed bytes to the HTTP parsers, whole or split into reads, and compare the events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from svc.wire.http1 import Event, MessageLimits, MessageRefused, RequestHead, RequestParser, ResponseParser

HOST = b"Host: a.example\r\n"


def request(
    line: bytes = b"GET / HTTP/1.1",
    fields: Sequence[bytes] = (),
    body: bytes = b"",
    *,
    host: bytes = HOST,
) -> bytes:
    """Write a request head of whole lines, and what follows it."""
    return line + b"\r\n" + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def response(line: bytes = b"HTTP/1.1 200 OK", fields: Sequence[bytes] = (), body: bytes = b"") -> bytes:
    """Write a response head of whole lines, and what follows it."""
    return line + b"\r\n" + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def cut(data: bytes, positions: Iterable[int]) -> list[bytes]:
    """Cut octets at the given positions."""
    ends = sorted({position for position in positions if 0 < position < len(data)}) + [len(data)]
    starts = [0, *ends[:-1]]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def octets(data: bytes) -> list[bytes]:
    """Cut into single octets."""
    return cut(data, range(len(data)))


def merged(events: Iterable[Event]) -> list[Event]:
    """Join adjacent pieces of a body."""
    result: list[Event] = []
    for event in events:
        if isinstance(event, bytes) and result and isinstance(result[-1], bytes):
            result[-1] += event
        else:
            result.append(event)
    return result


def comparable(events: Iterable[Event]) -> list[object]:
    """Join pieces of bodies and replace errors by their reasons."""
    return [event.error.reason if isinstance(event, MessageRefused) else event for event in merged(events)]


def read_requests(*reads: bytes, limits: MessageLimits | None = None) -> list[Event]:
    """Feed reads to a new parser of requests."""
    parser = RequestParser(limits)
    return merged([event for data in reads for event in parser.feed(data)])


def read_response(
    *reads: bytes, method: bytes = b"GET", limits: MessageLimits | None = None, upgrade: bool = False, eof: bool = False
) -> list[Event]:
    """Feed reads to a new parser of a response, and the end of the connection where ``eof`` says so."""
    parser = ResponseParser(method, limits, upgrade=upgrade)
    events = [event for data in reads for event in parser.feed(data)]
    return merged(events + (parser.feed_eof() if eof else []))


def refusal(events: Sequence[Event]) -> tuple[str, int] | None:
    """Return the reason and status of the last event where it is a defect; None where nothing was refused."""
    if events and isinstance(events[-1], MessageRefused):
        error = events[-1].error
        return error.reason, error.http_status
    return None


def heads(events: Iterable[Event]) -> list[RequestHead]:
    """Select the heads of requests."""
    return [event for event in events if isinstance(event, RequestHead)]


def names(events: Iterable[Event]) -> list[str]:
    """Return the kinds of events."""
    return [
        "body"
        if isinstance(event, bytes)
        else event.error.reason
        if isinstance(event, MessageRefused)
        else type(event).__name__
        for event in merged(events)
    ]
