"""
Path lengths and name constraints of a whole chain (RFC 5280, sections 4.2.1.9, 4.2.1.10 and 6.1).

A constraint that cannot be evaluated counts as violated.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from svc.identity.certificate import CertificateFacts
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed

#: Comparisons of names with name constraints for one SVID, each up to 6 µs: eight names under 128 constraints.
MAX_NAME_COMPARISONS: Final = 1024

_HOST: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\Z")


class _NotEvaluable(Exception):
    """A name or constraint of a form for which the standard defines no comparison."""


def check_path_length(path: Sequence[CertificateFacts]) -> None:
    """Check the path lengths in a chain, leaf first, the root's included; self-issued certificates are not counted."""
    below = 0
    for facts in path[1:]:
        if facts.path_length is not None and below > facts.path_length:
            raise SvidInvalid("path_length", subject=facts.subject, allowed=facts.path_length, found=below)
        if not facts.encoding.self_issued:
            below += 1


class ComparisonCounter:
    """Counts comparisons of names with constraints, over all chains of one search."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, number: int) -> None:
        """Count comparisons before they are made; raises ``chain_too_long`` beyond the limit."""
        self._count += number
        if self._count > MAX_NAME_COMPARISONS:
            found, what = f"more than {MAX_NAME_COMPARISONS}", "comparisons with name constraints"
            raise SvidInvalid("chain_too_long", found=found, what=what, limit=MAX_NAME_COMPARISONS)


def check_name_constraints(path: Sequence[CertificateFacts], comparisons: ComparisonCounter) -> None:
    """
    Check the name constraints in a chain, leaf first, the root's included.

    Raises:
        SvidInvalid: ``name_constraints``, when a name is not permitted, is excluded, or is of a constrained kind and
            cannot be evaluated; ``chain_too_long``, when too many comparisons are needed.
    """
    if all(facts.name_constraints is None for facts in path):
        return
    names = [tuple(_all_names(facts)) for facts in path]
    for position, issuer in enumerate(path):
        if issuer.name_constraints is None:
            continue
        permitted = _by_kind(issuer.name_constraints.permitted_subtrees)
        excluded = _by_kind(issuer.name_constraints.excluded_subtrees)
        for below, facts in enumerate(path[:position]):
            # RFC 5280, section 6.1.3: a self-issued certificate is exempt unless it is the leaf.
            if below > 0 and facts.encoding.self_issued:
                continue
            for kind, value in names[below]:
                inside, outside = permitted.get(kind, ()), excluded.get(kind, ())
                comparisons.add(len(inside) + len(outside))
                if not _allowed(kind, value, inside, outside):
                    raise SvidInvalid("name_constraints", subject=issuer.subject, name=_shown(value))


class _Directory(NamedTuple):
    """A directory name and its RDNs in the form in which they are compared."""

    name: x509.Name
    folded: list[frozenset[tuple[str, str]]]


def _all_names(facts: CertificateFacts) -> Iterator[tuple[type[x509.GeneralName], object]]:
    """Kind and value of the subject alternative names, of the subject, and of mail addresses inside the subject."""
    for name in facts.names:
        yield type(name), _comparable(name.value)
    subject = facts.certificate.subject
    if subject.rdns:
        yield x509.DirectoryName, _comparable(subject)
    for attribute in subject.get_attributes_for_oid(NameOID.EMAIL_ADDRESS):
        yield x509.RFC822Name, attribute.value


def _by_kind(subtrees: Sequence[x509.GeneralName] | None) -> dict[type[x509.GeneralName], list[object]]:
    found: dict[type[x509.GeneralName], list[object]] = {}
    for subtree in subtrees or ():
        found.setdefault(type(subtree), []).append(_comparable(subtree.value))
    return found


def _comparable(value: object) -> object:
    return _Directory(value, [_folded(rdn) for rdn in value.rdns]) if isinstance(value, x509.Name) else value


def _allowed(
    kind: type[x509.GeneralName], value: object, permitted: Sequence[object], excluded: Sequence[object]
) -> bool:
    if not permitted and not excluded:
        return True
    is_within = _IS_WITHIN.get(kind)
    if is_within is None:
        return False
    try:
        if permitted and not any(is_within(value, subtree, False) for subtree in permitted):
            return False
        return not any(is_within(value, subtree, True) for subtree in excluded)
    except _NotEvaluable:
        return False


def _shown(value: object) -> str:
    return value.name.rfc4514_string() if isinstance(value, _Directory) else str(value)


def _uri_within(name: object, subtree: object, excluding: bool) -> bool:
    """Compare the host of the URI, a SPIFFE ID's trust domain; a leading period matches subdomains only."""
    try:
        host = _host(SpiffeID.parse(str(name)).trust_domain.name)
    except SpiffeIdMalformed as error:
        raise _NotEvaluable from error
    if _is_ip_address(host):
        raise _NotEvaluable
    text = str(subtree).lower()
    if text.startswith("."):
        return host.endswith("." + _host(text[1:]))
    return host == _host(text)


def _dns_within(name: object, subtree: object, excluding: bool) -> bool:
    """Match the name itself and its subdomains; with a leading period only its subdomains."""
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
        raise _NotEvaluable
    if not isinstance(name, ipaddress.IPv4Address | ipaddress.IPv6Address):
        raise _NotEvaluable
    return name in subtree


def _mail_within(name: object, subtree: object, excluding: bool) -> bool:
    """Match one mailbox, all mailboxes of a host or, with a leading period, of the hosts of a domain."""
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
    """Match names that begin with the constraint, ignoring case and white space (RFC 5280, section 7.1)."""
    if not isinstance(name, _Directory) or not isinstance(subtree, _Directory):
        raise _NotEvaluable
    return name.folded[: len(subtree.folded)] == subtree.folded


def _folded(rdn: x509.RelativeDistinguishedName) -> frozenset[tuple[str, str]]:
    return frozenset(
        (attribute.oid.dotted_string, " ".join(str(attribute.value).split()).casefold()) for attribute in rdn
    )


def _host(text: str) -> str:
    if not _HOST.match(text):
        raise _NotEvaluable
    return text


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_IS_WITHIN: Final[dict[type, Callable[[object, object, bool], bool]]] = {
    x509.UniformResourceIdentifier: _uri_within,
    x509.DNSName: _dns_within,
    x509.IPAddress: _ip_within,
    x509.RFC822Name: _mail_within,
    x509.DirectoryName: _directory_within,
}
