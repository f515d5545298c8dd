"""
Name constraints and path length over a whole chain.

Owns RFC 5280, sections 4.2.1.9 and 4.2.1.10, and their place in 6.1. Knows nothing of signatures and time. Whatever
cannot be evaluated here counts as violated: a constraint is never passed over because it is of a strange kind.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from svc.identity.certificate import CertificateFacts
from svc.identity.errors import NameConstraintsViolated, PathLengthExceeded
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed

_HOST: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\Z")


class _Unreadable(Exception):
    """A name or constraint of a form that the standard gives no meaning."""


def check_path_length(path: Sequence[CertificateFacts]) -> None:
    """
    Honour the path lengths of all signing certificates (RFC 5280, section 4.2.1.9), the root's included.

    Args:
        path: leaf first, root last.

    Raises:
        PathLengthExceeded: when a certificate has more signing certificates below it than it allows; self-issued ones
            do not count.
    """
    below = 0
    for facts in path[1:]:
        if facts.path_length is not None and below > facts.path_length:
            raise PathLengthExceeded(subject=facts.subject, allowed=facts.path_length, found=below)
        if not facts.self_issued:
            below += 1


def check_name_constraints(path: Sequence[CertificateFacts]) -> None:
    """
    Honour the name constraints of all signing certificates (RFC 5280, section 4.2.1.10), the root's included.

    Args:
        path: leaf first, root last.

    Raises:
        NameConstraintsViolated: when a name lies outside what is permitted, inside what is excluded, or is of a kind
            that is constrained and cannot be evaluated.
    """
    for position, issuer in enumerate(path):
        constraints = issuer.name_constraints
        if constraints is None:
            continue
        for below, facts in enumerate(path[:position]):
            # RFC 5280, section 6.1.3: a self-issued certificate is exempt unless it is the leaf.
            if below > 0 and facts.self_issued:
                continue
            for kind, value in _all_names(facts):
                if not _allowed(kind, value, constraints):
                    raise NameConstraintsViolated(subject=issuer.subject, name=_shown(value))


def _all_names(facts: CertificateFacts) -> Iterator[tuple[type[x509.GeneralName], object]]:
    """Kind and value of the subject alternative names, of the subject, and of mail addresses inside the subject."""
    for name in facts.names:
        yield type(name), name.value
    subject = facts.certificate.subject
    if subject.rdns:
        yield x509.DirectoryName, subject
    for attribute in subject.get_attributes_for_oid(NameOID.EMAIL_ADDRESS):
        yield x509.RFC822Name, attribute.value


def _allowed(kind: type[x509.GeneralName], value: object, constraints: x509.NameConstraints) -> bool:
    permitted = [subtree.value for subtree in constraints.permitted_subtrees or () if type(subtree) is kind]
    excluded = [subtree.value for subtree in constraints.excluded_subtrees or () if type(subtree) is kind]
    if not permitted and not excluded:
        return True
    judge = _JUDGES.get(kind)
    if judge is None:
        return False
    try:
        if permitted and not any(judge(value, subtree, False) for subtree in permitted):
            return False
        return not any(judge(value, subtree, True) for subtree in excluded)
    except _Unreadable:
        return False


def _shown(value: object) -> str:
    return value.rfc4514_string() if isinstance(value, x509.Name) else str(value)


def _uri_within(name: object, subtree: object, excluding: bool) -> bool:
    """The host of the URI, which for a SPIFFE ID is its trust domain; a leading period means subdomains only."""
    try:
        host = _host(SpiffeID.parse(str(name)).trust_domain.name)
    except SpiffeIdMalformed as error:
        raise _Unreadable from error
    if _is_ip_address(host):
        raise _Unreadable
    text = str(subtree).lower()
    if text.startswith("."):
        return host.endswith("." + _host(text[1:]))
    return host == _host(text)


def _dns_within(name: object, subtree: object, excluding: bool) -> bool:
    """The name itself or any name that adds labels on the left; a leading period demands at least one label more."""
    host, text = str(name).lower(), str(subtree).lower()
    if text == "":
        return True
    wildcard = host.startswith("*.")
    host = _host(host.removeprefix("*."))
    only_below = text.startswith(".")
    domain = _host(text.removeprefix("."))
    if host.endswith("." + domain):
        return True
    if host == domain:
        return wildcard or not only_below
    # *.example.org covers a.example.org, so excluding that one excludes the wildcard.
    return excluding and wildcard and domain.endswith("." + host)


def _ip_within(name: object, subtree: object, excluding: bool) -> bool:
    if not isinstance(subtree, ipaddress.IPv4Network | ipaddress.IPv6Network):
        raise _Unreadable
    if not isinstance(name, ipaddress.IPv4Address | ipaddress.IPv6Address):
        raise _Unreadable
    return name in subtree


def _mail_within(name: object, subtree: object, excluding: bool) -> bool:
    """One mailbox, all of a host, or, with a leading period, all of a domain's hosts."""
    local, _, host = str(name).rpartition("@")
    host = _host(host.lower())
    text = str(subtree)
    if "@" in text:
        constraint_local, _, constraint_host = text.rpartition("@")
        return local == constraint_local and host == _host(constraint_host.lower())
    if text.startswith("."):
        return host.endswith("." + _host(text[1:].lower()))
    return host == _host(text.lower())


def _directory_within(name: object, subtree: object, excluding: bool) -> bool:
    """The constraint is a prefix of the name, compared without regard to case and space (RFC 5280, section 7.1)."""
    if not isinstance(name, x509.Name) or not isinstance(subtree, x509.Name):
        raise _Unreadable
    prefix = [_folded(rdn) for rdn in subtree.rdns]
    return [_folded(rdn) for rdn in name.rdns[: len(prefix)]] == prefix


def _folded(rdn: x509.RelativeDistinguishedName) -> frozenset[tuple[str, str]]:
    return frozenset(
        (attribute.oid.dotted_string, " ".join(str(attribute.value).split()).casefold()) for attribute in rdn
    )


def _host(text: str) -> str:
    if not _HOST.match(text):
        raise _Unreadable
    return text


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_JUDGES: Final[dict[type, Callable[[object, object, bool], bool]]] = {
    x509.UniformResourceIdentifier: _uri_within,
    x509.DNSName: _dns_within,
    x509.IPAddress: _ip_within,
    x509.RFC822Name: _mail_within,
    x509.DirectoryName: _directory_within,
}
