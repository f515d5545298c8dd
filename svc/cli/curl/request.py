"""
What ``svc curl`` sends: method, fields and body of its flags.

Owns the rules of ``-X``, ``-H`` and ``-d`` with its variants. Non-empty data turns GET into POST and leaves another
method alone; data that is a JSON object or array gets a content type unless the user gave one. As with curl, several
pieces of data are joined by ``&`` in the order of the command line, ``@FILE`` is the content of a file and ``@-``
standard input, of which ``-d`` removes CR, LF and NUL; ``--data-raw`` is literal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Final

from svc.cli.errors import CliError, FileUnreadable, UsageRefused
from svc.cli.flags import DataPiece
from svc.client.request import MAX_DATA, Request, build_request, check_field
from svc.client.target import Target
from svc.notary.level import Level
from svc.wire.fields import Field

_STANDARD_INPUT: Final = "standard input"
_REMOVED: Final = b"\r\n\0"


class DataUnreadable(FileUnreadable):
    """{path} cannot be read: {detail}"""

    hint = "{flag} @FILE sends the content of a file, as with curl; --data-raw sends text that begins with @"


def curl_request(
    target: Target, *, method: str, headers: Sequence[str], body: bytes, level: Level, nonce: str
) -> Request:
    """
    Build a request of the values of ``-X``, ``-H`` and ``-d``.

    Args:
        body: empty for none.
        nonce: 22 characters.

    Raises:
        UsageRefused: a header that is none.
        RequestInvalid: a method or a field that cannot be sent.
    """
    fields = [parse_header(text) for text in headers]
    if body and all(name.lower() != b"content-type" for name, _value in fields) and _is_json(body):
        fields.append((b"Content-Type", b"application/json"))
    chosen = "POST" if body and method == "GET" else method
    return build_request(target, method=chosen, fields=fields, body=body, level=level, nonce=nonce)


def parse_header(text: str) -> Field:
    """
    Parse the value of one ``-H``, ``Name: value``; the value may be empty.

    Raises:
        UsageRefused: it has no name.
        RequestInvalid: a control character, a field that svc or the proxy writes itself.
    """
    name, colon, value = text.partition(":")
    if not colon:
        raise UsageRefused(f'-H "{text}" is no header', "write -H 'Name: value'")
    return check_field(os.fsencode(name), os.fsencode(value).strip(b" \t"))


def read_data(pieces: Iterable[DataPiece], stdin: BinaryIO | None, limit: int = MAX_DATA) -> bytes:
    """
    Read the body of a request from the values of the data flags, in the order of the command line.

    Args:
        stdin: standard input; None where it is closed.
        limit: the most octets.
    """
    body = b""
    for flag, text in pieces:
        octets, source = os.fsencode(text), flag
        if text.startswith("@") and flag != "--data-raw":
            source = _STANDARD_INPUT if text == "@-" else text[1:]
            octets = _content(flag, source, stdin, limit)
        body = body + b"&" + octets if body else octets
        if len(body) > limit:
            raise CliError("data_too_large", path=source, limit=limit)
    return body


def _content(flag: str, source: str, stdin: BinaryIO | None, limit: int) -> bytes:
    try:
        if source is not _STANDARD_INPUT:
            with open(source, "rb") as file:
                octets = file.read(limit + 1)
        elif stdin is None:
            raise DataUnreadable(path=source, detail="it is closed", flag=flag)
        else:
            octets = stdin.read(limit + 1)
    except OSError as error:
        raise DataUnreadable(path=source, detail=(error.strerror or str(error)).lower(), flag=flag) from error
    if len(octets) > limit:
        raise CliError("data_too_large", path=source, limit=limit)
    return octets.translate(None, _REMOVED) if flag == "--data" else octets


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict | list)
    except (ValueError, RecursionError):
        return False
