"""
Which words of a kubectl command may be kept in a log.

What is not known to be harmless is left out: flags that are not listed here and values of most of those that are, what
follows a sign of equality, addresses, the words of plugins, and the arguments of what runs in a container.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from svc.compartments.argv import all_flags
from svc.compartments.verbs import VERBS

#: Stands for what was left out.
REDACTED: Final = "***"
#: How many words are kept, and how many characters of each.
MAX_WORDS: Final = 64
MAX_WORD: Final = 256
#: Flags whose values are kept.
_SHOWN: Final = frozenset({
    "as", "as-group", "as-uid", "cluster", "compartment", "container", "context", "field-manager", "field-selector",
    "filename", "for", "grace-period", "image", "kustomize", "label-columns", "limit-bytes", "namespace", "output",
    "replicas", "request-timeout", "revision", "selector", "since", "since-time", "sort-by", "subresource", "tail",
    "timeout", "to-revision", "type", "user",
})  # fmt: skip
#: Flags whose values are not kept, beside those of all commands.
_HIDDEN: Final = frozenset({
    "docker-email", "docker-password", "docker-server", "docker-username", "env", "from-env-file", "from-file",
    "from-literal", "overrides", "patch",
})  # fmt: skip
_SHOWN_LETTERS: Final = frozenset("Lcfklno")
_BARE_LETTERS: Final = frozenset("AhiqRtw")


def redacted(words: Sequence[str]) -> list[str]:
    """The words of a command without what may be secret: at most :data:`MAX_WORDS` of them, each of bounded size."""
    kept = list(_kept(words)) if words[0] in VERBS else [words[0], *([REDACTED] if words[1:] else [])]
    cut = [word if len(word) <= MAX_WORD else f"{word[:MAX_WORD]}{REDACTED}" for word in kept]
    return cut if len(cut) <= MAX_WORDS else [*cut[:MAX_WORDS], REDACTED]


def _kept(words: Sequence[str]) -> Iterator[str]:
    end = words.index("--") if "--" in words else len(words)
    pending = list(reversed(words[:end]))
    while pending:
        word = pending.pop()
        if not _is_flag(word):
            yield _argument(word)
            continue
        shown, follows = _long(word) if word[1] == "-" else _short(word)
        yield shown
        if follows == "hidden" and pending:
            yield REDACTED
            # What looks like a flag may be one that was not meant as a value.
            follows = "unknown" if _is_flag(pending.pop()) else ""
        if follows and pending and not _is_flag(pending[-1]):
            value = pending.pop()
            yield _value(value) if follows == "shown" else REDACTED
    yield from words[end : end + 1]
    yield from map(_argument, words[end + 1 : end + 2])


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word[0] == "-"


def _long(word: str) -> tuple[str, str]:
    """The flag as it is kept, and what of the next word: nothing, its shown or hidden value, or unknown."""
    name, equals, value = word[2:].partition("=")
    name = name.replace("_", "-")
    names, valued = all_flags()
    if name in _SHOWN:
        return (f"--{name}={_value(value)}", "") if equals else (f"--{name}", "shown")
    if name in names and name not in valued:
        return word, ""
    known = name if name in valued or name in _HIDDEN else ""
    shown = f"--{known or REDACTED}"
    return (f"{shown}={REDACTED}", "") if equals else (shown, "hidden" if known else "unknown")


def _short(word: str) -> tuple[str, str]:
    """As :func:`_long`, for a word of flags with one letter."""
    for place, letter in enumerate(word[1:], 1):
        rest = word[place + 1 :]
        if letter in _BARE_LETTERS and not rest.startswith("="):
            continue
        if letter not in _SHOWN_LETTERS:
            return f"{word[:place]}{REDACTED}", "" if rest else "unknown"
        return (f"{word[: place + 1]}{_value(rest)}", "") if rest else (word, "shown")
    return word, ""


def _argument(word: str) -> str:
    name, equals, _value_of = word.partition("=")
    return f"{_value(name)}{equals}{REDACTED if equals else ''}"


def _value(text: str) -> str:
    """A value that is kept but for addresses, which may contain a password."""
    return REDACTED if "://" in text else text
