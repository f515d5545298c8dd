"""
Registration entries for the service accounts of enabled namespaces. Pure.

An entry that somebody else has made for the same identity, parent and selectors is as good: SPIRE does not take it
twice.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from svc.errors import SvcError
from svc.identity import SpiffeID, TrustDomain
from svc.kube.client import Object
from svc.naming import ENTRY_OWNER, M2M_PATH, MANAGER
from svc.spire.entries import MAX_NAMES, EntryChanges, RegistrationEntry, changes

#: Service accounts that get entries at most: all of them are compared at each attempt, which must not keep the manager
#: from renewing its Lease.
MAX_ACCOUNTS: Final = 10_000


class AccountsTooMany(SvcError):
    """{count} service accounts of enabled namespaces need registration entries, and {limit} are possible"""

    reason = "accounts_too_many"
    hint = "no entry was changed: disable namespaces, or delete service accounts that no pod uses"


def wanted_entries(
    namespaces: Container[str],
    accounts: Iterable[tuple[str, str]],
    parent_id: SpiffeID,
    *,
    ttl: int = 0,
    federates_with: frozenset[str] = frozenset(),
    limit: int = MAX_ACCOUNTS,
) -> list[RegistrationEntry]:
    """
    Return the entries that there should be.

    Args:
        namespaces: the names of those that are enabled.
        accounts: the service accounts of all namespaces, by namespace and name.
        parent_id: the alias of the nodes on which their pods run; the identities are of its trust domain.
        ttl: seconds that X.509-SVIDs live; 0 for the server's default.
        federates_with: the trust domains whose bundles come with each SVID.
        limit: of entries.

    Raises:
        AccountsTooMany: there would be more.
    """
    found = [each for each in accounts if each[0] in namespaces]
    if len(found) > limit:
        raise AccountsTooMany(count=len(found), limit=limit)
    return [_entry(namespace, name, parent_id, ttl, federates_with) for namespace, name in found]


def account_id(trust_domain: TrustDomain, namespace: str, name: str) -> SpiffeID:
    """Return the SPIFFE ID of a service account."""
    return SpiffeID(trust_domain, f"/ns/{namespace}/sa/{name}")


def m2m_entry(namespace: str, parent_id: SpiffeID, federates_with: frozenset[str] = frozenset()) -> RegistrationEntry:
    """
    Return the entry of the SVID that the manager shows to peers.

    Args:
        namespace: the manager's.
        parent_id: the alias of the nodes.
        federates_with: the trust domains whose bundles the manager has written.
    """
    selectors = frozenset({f"k8s:ns:{namespace}", f"k8s:sa:{MANAGER}"})
    spiffe_id = SpiffeID(parent_id.trust_domain, M2M_PATH)
    return RegistrationEntry(spiffe_id, parent_id, selectors, federates_with=federates_with, owner=ENTRY_OWNER)


def written_bundles(peers: Iterable[Object]) -> frozenset[str]:
    """Return the trust domains of the ``SvcForeignCluster`` objects whose bundles SPIRE has, as their status says."""
    return frozenset(
        each["spec"]["trustDomain"]
        for each in peers
        for condition in (each.get("status") or {}).get("conditions") or ()
        if condition["type"] == "BundleSynced" and condition["status"] == "True"
    )


def federated_domains(
    written: frozenset[str], bundles: Iterable[Any], stored: Iterable[Any]
) -> tuple[frozenset[str], frozenset[str]]:
    """
    Return the trust domains with which entries federate: SPIRE refuses an entry where a bundle is not there.

    Args:
        written: see :func:`written_bundles`.
        bundles: the messages of the federated bundles that the server has.
        stored: the messages of all its entries.

    Returns:
        Those of service accounts, and those of :func:`m2m_entry`, which forgets a bundle only when it is gone: so it
        is known for which ones the manager has to care.
    """
    there = {each.trust_domain for each in bundles}
    recorded = {
        name.removeprefix("spiffe://")
        for each in stored
        if each.id.startswith(ENTRY_OWNER) and each.spiffe_id.path == M2M_PATH
        for name in each.federates_with
    }
    usable = frozenset(sorted(written & there)[:MAX_NAMES])
    return usable, frozenset(sorted((usable | recorded) & there)[:MAX_NAMES])


def due_changes(stored: Sequence[Any], wanted: Iterable[RegistrationEntry]) -> EntryChanges:
    """Compare the messages of all entries of a server with what is wanted; entries of others stay as they are."""
    others = {_content(each) for each in stored if not each.id.startswith(ENTRY_OWNER)}
    return changes(stored, [each for each in wanted if _content(each.message()) not in others], owner=ENTRY_OWNER)


def _entry(
    namespace: str, name: str, parent_id: SpiffeID, ttl: int, federates_with: frozenset[str]
) -> RegistrationEntry:
    selectors = frozenset({f"k8s:ns:{namespace}", f"k8s:sa:{name}"})
    spiffe_id = account_id(parent_id.trust_domain, namespace, name)
    return RegistrationEntry(
        spiffe_id, parent_id, selectors, x509_svid_ttl=ttl, federates_with=federates_with, owner=ENTRY_OWNER
    )


def _content(message: Any) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """What SPIRE does not take twice, within its one trust domain."""
    selectors = frozenset((each.type, each.value) for each in message.selectors)
    return message.spiffe_id.path, message.parent_id.path, selectors
