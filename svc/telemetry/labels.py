"""
The values that metric labels can take.

Every label of a metric has a bounded set of values, whatever a peer sends: this module owns these sets. What is outside
of its set is counted as ``other``.
"""

from __future__ import annotations

import re
from typing import Final, Literal

Protocol = Literal["http", "tcp", "mqtt"]
Direction = Literal["inbound", "outbound"]
Role = Literal["server", "client"]
NotaryProtocol = Literal["http", "mqtt"]
Level = Literal["workload", "logRequest", "signRequest"]

LEVELS: Final[tuple[Level, ...]] = ("workload", "logRequest", "signRequest")
OTHER: Final = "other"

#: The methods of RFC 9110, section 9, and PATCH (RFC 5789).
HTTP_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"),
)

#: Key exchange groups by the names that OpenSSL gives them.
TLS_GROUPS: Final = frozenset(
    (
        "X25519MLKEM768",
        "SecP256r1MLKEM768",
        "SecP384r1MLKEM1024",
        "MLKEM512",
        "MLKEM768",
        "MLKEM1024",
        "x25519",
        "x448",
        "secp256r1",
        "secp384r1",
        "secp521r1",
        "prime256v1",
        "ffdhe2048",
        "ffdhe3072",
    )
)

_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_GROUPS_BY_FOLDED: Final = {name.lower(): name for name in TLS_GROUPS}


def tls_group(name: str) -> str:
    """
    Bound the name of a key exchange group.

    Args:
        name: as the TLS library reports it, in any case.

    Returns:
        The name in the spelling of :data:`TLS_GROUPS`, or ``other``.
    """
    return _GROUPS_BY_FOLDED.get(name.lower(), OTHER)


_METHODS_BY_OCTETS: Final = {name.encode("ascii"): name for name in HTTP_METHODS}


def http_method(method: bytes) -> str:
    """
    Bound the method of a request.

    Args:
        method: as it stands on the wire; methods are case-sensitive (RFC 9110, section 9.1).

    Returns:
        The method, or ``other``.
    """
    return _METHODS_BY_OCTETS.get(method, OTHER)


class ReasonWords:
    """
    Bounds a label whose values are reason words of our own classes.

    The words are defined where the errors are, not here; this only holds the door against a mistake that would put a
    value from outside into a label.

    Args:
        limit: how many different words are counted apart; further ones are ``other``.
    """

    def __init__(self, limit: int = 96) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def bounded(self, word: str) -> str:
        """
        Bound one word.

        Args:
            word: a reason such as ``chain_untrusted``.

        Returns:
            The word, or ``other`` where it is not one or where too many are known already.
        """
        if word in self._known:
            return word
        if len(self._known) >= self._limit or not _WORD.match(word):
            return OTHER
        self._known.add(word)
        return word
