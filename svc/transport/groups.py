"""
Which key agreement groups a TLS context offers and accepts.

Owns the hybrid groups of RFC 10024 and the check at start that OpenSSL has them. Fails closed: ``require`` without
hybrid groups is an error, never a classical connection.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from OpenSSL import SSL

from svc.transport.binding import lib
from svc.transport.errors import TransportError

#: ``default`` prefers the hybrids and falls back to classical groups; ``require`` has no fallback.
GroupPolicy = Literal["default", "require"]

HYBRID_GROUPS: Final = ("X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024")
CLASSICAL_GROUPS: Final = ("X25519", "P-256", "P-384")

# What OpenSSL calls a group, in lower case, to the name in IANA's registry "TLS Supported Groups".
_IANA_NAMES: Final = {
    name.lower(): name for name in (*HYBRID_GROUPS, "x25519", "x448", "secp256r1", "secp384r1", "secp521r1")
} | {"prime256v1": "secp256r1", "p-256": "secp256r1", "p-384": "secp384r1", "p-521": "secp521r1"}
_HYBRID_LOWER: Final = frozenset(name.lower() for name in HYBRID_GROUPS)


def _group_lists(policy: GroupPolicy) -> tuple[str, ...]:
    hybrid, classical = ":".join(HYBRID_GROUPS), ":".join(CLASSICAL_GROUPS)
    if policy == "require":
        return (hybrid,)
    # The slash ends a preference class (SSL_CTX_set1_groups_list, OpenSSL 3.5): a server asks again for a hybrid share
    # where the peer supports one but guessed a classical share. Without that syntax plain order is second best.
    return f"{hybrid}/{classical}", f"{hybrid}:{classical}", classical


def apply_groups(context: SSL.Context, policy: GroupPolicy, *, binding: Any = lib) -> None:
    """
    Set the key agreement groups of a context that has no connection yet.

    Raises:
        TransportError: ``pq_unavailable``, where OpenSSL or its binding cannot satisfy ``require``.
    """
    set_list = getattr(binding, "SSL_CTX_set1_curves_list", None)
    if set_list is None:
        if policy == "require":
            raise TransportError("pq_unavailable", detail="the binding has no SSL_CTX_set1_curves_list")
        return
    for names in _group_lists(policy):
        if set_list(context._context, names.encode("ascii")) == 1:
            return
        binding.ERR_clear_error()
    if policy == "require":
        raise TransportError("pq_unavailable", detail=f"none of {', '.join(HYBRID_GROUPS)} is known to it")


def check_groups(policy: GroupPolicy) -> None:
    """
    Test at start that the policy can be kept, so that no listener starts without it.

    Raises:
        TransportError: ``pq_unavailable``, where it cannot.
    """
    for method in (SSL.TLS_SERVER_METHOD, SSL.TLS_CLIENT_METHOD):
        apply_groups(SSL.Context(method), policy)


def iana_name(group: str | None) -> str:
    """The name of a group in IANA's registry; the given name where it is not listed here, ``unknown`` for none."""
    if not group:
        return "unknown"
    return _IANA_NAMES.get(group.lower(), group)


def is_hybrid(group: str) -> bool:
    """Whether a group, in any spelling, is ML-KEM combined with a classical curve (RFC 10024)."""
    return group.lower() in _HYBRID_LOWER
