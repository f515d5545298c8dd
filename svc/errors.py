"""
The root of every error, and how an error speaks to a person.

The class carries the codes, its docstring is the sentence that the user reads, and the instance carries the evidence.
A subclass is declared as::

    class SvidExpired(SvidInvalid):
        \"\"\"the SVID of {spiffe_id} expired at {not_after}\"\"\"

        reason = "expired"
        hint = "check that the Workload API still renews SVIDs"

and raised as ``SvidExpired(spiffe_id=..., not_after=...)``. Nobody matches on message text: match on the class or on
``reason``. No key, token or body is ever put into the evidence.
"""

from __future__ import annotations

from typing import ClassVar


def printable(text: object, limit: int = 300) -> str:
    """
    Make a value from outside safe to show on a terminal or in a log.

    C0 and C1 controls, bidirectional controls, line and paragraph separators and lone surrogates are written as
    ``\\xNN`` or ``\\uNNNN``.

    Args:
        text: the value; ``str()`` is applied.
        limit: the most characters kept; what is cut is replaced by an ellipsis.

    Returns:
        Text without any character that moves the cursor or reorders a line.
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


class SvcError(Exception):
    """something went wrong inside svc"""

    #: One enumerated word: the same in exit text, log, receipt verification and status conditions.
    reason: ClassVar[str] = "internal_error"
    #: What an HTTP proxy answers where this error ends a request.
    http_status: ClassVar[int] = 500
    #: What the command line exits with.
    exit_status: ClassVar[int] = 1
    #: What the person who reads the sentence can do about it; may use the evidence as the docstring does.
    hint: ClassVar[str] = ""

    def __init__(self, **evidence: object) -> None:
        super().__init__(*evidence.values())
        self.evidence = evidence
        for name, value in evidence.items():
            if name == "evidence" or hasattr(SvcError, name):
                raise TypeError(f"evidence must not hide the attribute {name}")
            setattr(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles carry the evidence by name; the default would pass it by position."""
        return _rebuilt, (type(self), self.evidence), self.__dict__

    def __str__(self) -> str:
        return self._filled(type(self).__doc__ or self.reason)

    def advice(self) -> str:
        """
        Say what to do about it.

        Returns:
            The hint with the evidence filled in, or an empty string.
        """
        return self._filled(self.hint)

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
