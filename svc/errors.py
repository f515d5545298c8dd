"""
The base class of all errors: codes, the sentence and the hint for users, and the evidence.

A class whose errors are caught alike lists its reasons in a table::

    class SvidInvalid(SvcError):
        \"\"\"the SVID is not valid\"\"\"

        reason = "svid_invalid"
        reasons = {
            "leaf_is_ca": Reason(
                "the leaf certificate of {spiffe_id} has the CA flag",
                hint="a signing certificate must not be used to authenticate",
            ),
        }

    raise SvidInvalid("leaf_is_ca", spiffe_id=...)

An error that is caught by itself, or that has its own HTTP or exit status, is a class; its docstring is its sentence.
Code matches on classes, never on a reason or on message text. No key, token or body is ever put into the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


def printable(text: object, limit: int = 300) -> str:
    """
    Make the text of an untrusted value safe for a terminal or a log.

    C0 and C1 controls, bidirectional controls, line and paragraph separators and lone surrogates are written as
    ``\\xNN`` or ``\\uNNNN``; an ellipsis replaces what is longer than ``limit`` characters.
    """
    raw = str(text)
    if len(raw) > limit:
        raw = raw[:limit] + "…"
    if raw.isascii() and raw.isprintable():
        return raw
    return "".join(_shown(character) for character in raw)


_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")


def _shown(character: str) -> str:
    code = ord(character)
    if character not in _BIDI and (character.isprintable() or character == "…"):
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Sentence and hint of an error with this reason; both may contain the evidence, as in ``{limit}``."""

    sentence: str
    hint: str = ""
    #: That of the class where None.
    http_status: int | None = None


class SvcError(Exception):
    """something went wrong inside svc"""

    #: The same word in messages, logs, metrics and reports.
    reason: str = "internal_error"
    #: Further reasons of this class.
    reasons: ClassVar[Mapping[str, Reason]] = {}
    #: The status of the HTTP response when this error ends a request.
    http_status: int = 500
    #: The exit status of the command line.
    exit_status: ClassVar[int] = 1
    #: What the user can do about it. Classes may name the evidence as the docstring does; an instance has it filled in.
    hint: str = ""

    def __init__(self, reason: str | None = None, /, **evidence: object) -> None:
        super().__init__(*evidence.values())
        self._sentence = type(self).__doc__ or self.reason
        if reason is not None:
            row = self.reasons[reason]
            self.reason, self._sentence, self.hint = reason, row.sentence, row.hint
            if row.http_status is not None:
                self.http_status = row.http_status
        self.evidence = evidence
        for name, value in evidence.items():
            if name == "evidence" or hasattr(SvcError, name):
                raise TypeError(f"evidence must not hide the attribute {name}")
            setattr(self, name, value)
        if self.hint:
            self.hint = self._filled(self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by keyword; the default would pass the evidence by position."""
        return _rebuilt, (type(self), self.evidence), self.__dict__

    def __str__(self) -> str:
        return self._filled(self._sentence)

    def _filled(self, template: str) -> str:
        first_paragraph = template.strip().split("\n\n")[0]
        sentence = " ".join(first_paragraph.split())
        shown = {name: printable(value) for name, value in self.evidence.items()}
        try:
            return sentence.format_map(shown)
        except (KeyError, IndexError, ValueError):
            return sentence


def _rebuilt(kind: type[SvcError], evidence: dict[str, object]) -> SvcError:
    error = kind.__new__(kind)
    SvcError.__init__(error, **evidence)
    return error
