"""Files that a command reads as a whole, and the documents that ``-o json`` and ``-o yaml`` print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from svc.cli.errors import FileUnreadable
from svc.errors import printable

#: Texts that every reader of YAML takes for a text, whatever its version; all others are quoted.
_PLAIN: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./ -]*[A-Za-z0-9_./-])?")
_CONSTANTS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def read_file(path: str, limit: int) -> bytes:
    """
    Read up to one octet more than the limit, so that a parser refuses a larger file.

    Raises:
        FileUnreadable: it is not there, or may not be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        raise FileUnreadable(path=path, detail=(error.strerror or str(error)).lower()) from error


def document_text(document: Mapping[str, object], output: str) -> str:
    """
    Write a document as ``json``, one line, or as ``yaml``, in blocks.

    Args:
        document: made of mappings with text keys, lists, texts, integers, booleans and None.
        output: the value of ``-o``.
    """
    if output == "json":
        return json.dumps(document) + "\n"
    return "".join(f"{line}\n" for line in _block(document))


def _block(value: object) -> Iterator[str]:
    """Lines of YAML; nested blocks are indented by two, items of a list by none, as kubectl prints them."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{_scalar(key)}:", each, "" if isinstance(each, list | tuple) else "  ")
    elif isinstance(value, list | tuple) and value:
        for each in value:
            lines = list(_block(each))
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
    else:
        yield _scalar(value)


def _entry(key: str, value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        yield key
        yield from (f"{indent}{line}" for line in _block(value))
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _CONSTANTS:
        return value
    # What printable() writes for a character that is not printed is an escape of YAML (1.2.2, section 5.7).
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped, len(escaped))}"'
