"""
The controller of identities: service accounts of enabled namespaces in, registration entries of the SPIRE server out.

A pod needs its entry before it runs, so entries belong to service accounts. What was read last from the API server
stays in force while it is away, and nothing is compared before everything was read once: an entry is deleted only
because the API server has said that its service account is gone, or its namespace not enabled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.logger import Logger

from svc.identity import SpiffeID
from svc.kube.cache import Cache, run_all
from svc.kube.kinds import FOREIGN_CLUSTERS, SERVICE_ACCOUNTS
from svc.manager.context import ClusterContext, ClusterSpire
from svc.manager.identities.entries import (
    account_id,
    due_changes,
    federated_domains,
    m2m_entry,
    wanted_entries,
    written_bundles,
)
from svc.spire.entries import EntryChanges, RegistrationEntry
from svc.spire.errors import EntryRefused
from svc.spire.server import EntryFailure
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit


class EntryController:
    """
    Follows namespaces and service accounts, and makes the entries of the SPIRE server equal where this replica leads.

    Args:
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "entries"

    def __init__(self, context: ClusterContext, spire: ClusterSpire, changed: Callable[[], object]) -> None:
        self._trust_domain = context.trust_domain
        self._parent_id = SpiffeID(self._trust_domain, spire.settings.parentID)
        self._ttl = int(spire.settings.x509SvidTtl)
        self._namespace = context.namespace
        self._changed = changed
        #: Namespace and name of the service accounts by their identities; None when it is to be made anew.
        self._table: dict[SpiffeID, tuple[str, str]] | None = None
        self._written: frozenset[str] = frozenset()
        self._peers = (
            None if context.settings.federation is None else context.cache(FOREIGN_CLUSTERS, self._peers_changed)
        )
        self._every = spire.settings.every
        self._metrics = context.metrics
        self._namespaces = context.enabled_namespaces(self._accounts_changed)
        self._accounts = context.cache(SERVICE_ACCOUNTS, self._accounts_changed)
        self._server = spire.server()

    @property
    def caches(self) -> tuple[Cache, ...]:
        """What it follows."""
        return self._namespaces, self._accounts, *(() if self._peers is None else (self._peers,))

    @property
    def synced(self) -> bool:
        """Whether all namespaces and service accounts were read once."""
        return self._namespaces.synced.is_set() and self._accounts.synced.is_set()

    def account_of(self, spiffe_id: SpiffeID) -> tuple[str, str] | None:
        """Return namespace and name of the service account whose entry has an identity; None where there is none."""
        if self._table is None:
            self._table = {
                account_id(self._trust_domain, namespace, name): (namespace, name)
                for namespace, name in self._accounts.objects
                if ("", namespace) in self._namespaces.objects
            }
        return self._table.get(spiffe_id)

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> float:
        """
        Make the entries equal.

        Returns:
            Seconds until the server is asked again: it may have lost its data.

        Raises:
            EntryRefused: the server did not accept one; the others are as they should be.
        """
        try:
            stored = await self._server.entries()
            todo = due_changes(stored, await self._wanted(stored))
            failures = await self._server.apply(todo) if todo else []
        finally:
            # Each attempt has the SVID and the bundle of now, and none hangs at a server that was there before.
            self._server.close()
        self._report(todo, failures)
        return self._every

    async def _wanted(self, stored: Sequence[Any]) -> list[RegistrationEntry]:
        enabled = {name for _none, name in self._namespaces.objects}
        wanted = partial(wanted_entries, enabled, self._accounts.objects, self._parent_id, ttl=self._ttl)
        if self._peers is None:
            return wanted()
        federated, recorded = federated_domains(self._written, await self._server.federated_bundles(), stored)
        return [*wanted(federates_with=federated), m2m_entry(self._namespace, self._parent_id, recorded)]

    def _accounts_changed(self) -> None:
        self._table = None
        self._changed()

    def _peers_changed(self) -> None:
        """The status of a peer is written at each poll, and other bundles are rare."""
        written = frozenset() if self._peers is None else written_bundles(self._peers.objects.values())
        if written != self._written:
            self._written = written
            self._changed()

    def _report(self, todo: EntryChanges, failures: list[EntryFailure]) -> None:
        counts = {"created": len(todo.create), "updated": len(todo.update), "deleted": len(todo.delete)}
        if len(failures) < sum(counts.values()):
            emit(self.log, ManagerEvent.ENTRIES_CHANGED, attributes={**counts, "refused": len(failures)})
        if failures:
            first = failures[0]
            raise EntryRefused(action=first.action, entry=first.id, detail=first.detail)
