"""
Challenges of a registry: how it wants to be asked (RFC 9110, section 11; the token specification of Distribution).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'[ \t]*({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))[ \t]*(?:,|\Z)')
_SCHEME: Final = re.compile(rf"[ \t,]*({_WORD})(?:[ \t]+|[ \t]*,|[ \t]*\Z)")
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?:,|\Z)")
_ESCAPED: Final = re.compile(r"\\(.)")
_MAX_LENGTH: Final = 8192


@dataclass(frozen=True, slots=True)
class Challenge:
    """
    One challenge.

    Attributes:
        scheme: in lower case.
        parameters: by their names in lower case.
    """

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(fields: Iterable[str]) -> list[Challenge]:
    """
    Parse the values of ``WWW-Authenticate``.

    Args:
        fields: one for each field; each may hold several challenges.

    Returns:
        The challenges up to the first octets that are none; a repeated parameter makes its challenge unusable, and it
        is left out.
    """
    found: list[Challenge] = []
    for text in fields:
        at = 0
        text = text[:_MAX_LENGTH]
        while at < len(text) and (scheme := _SCHEME.match(text, at)) is not None:
            at = scheme.end()
            parameters: dict[str, str] = {}
            repeated = False
            while (parameter := _PARAMETER.match(text, at)) is not None:
                name, quoted, plain = parameter.groups()
                repeated = repeated or name.lower() in parameters
                parameters[name.lower()] = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
                at = parameter.end()
            if not parameters and (credentials := _TOKEN68.match(text, at)) is not None and "=" in credentials[0]:
                at = credentials.end()
            if not repeated:
                found.append(Challenge(scheme[1].lower(), parameters))
    return found


def choose_challenge(challenges: Sequence[Challenge]) -> Challenge | None:
    """Return the challenge to answer: Bearer with a realm, else Basic, else None."""
    for each in challenges:
        if each.scheme == "bearer" and each.parameters.get("realm"):
            return each
    return next((each for each in challenges if each.scheme == "basic"), None)


def scopes_for(challenge: Challenge, wanted: Sequence[str]) -> list[str]:
    """
    Return the scopes of a token: those of the challenge, and those wanted for repositories that it does not name.

    Args:
        challenge: of the scheme Bearer.
        wanted: such as ``repository:acme/svc:pull``.
    """
    scopes = challenge.parameters.get("scope", "").split()
    named = {each.rpartition(":")[0] for each in scopes}
    return scopes + [each for each in wanted if each.rpartition(":")[0] not in named]
