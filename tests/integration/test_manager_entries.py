"""Registration entries that ``twistd svc-manager`` keeps, with a real API server and a real SPIRE."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, Final
from uuid import uuid4

from svc.identity import SpiffeID
from svc.manager.identities.entries import wanted_entries
from svc.naming import ENTRY_OWNER, INJECTION_ENABLED, LABEL_INJECTION
from svc.registrar.config import OWNER as REGISTRAR
from svc.spire.entries import EntryChanges, RegistrationEntry
from svc.spire.server import SpireServer
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import eventually

NODES: Final = SpiffeID.parse("spiffe://example.org/node")
ACCOUNTS: Final = "serviceaccounts"
WHAT: Final = {"what": "entries"}


class EntriesCase(ManagerCase):
    """A SPIRE whose administrator the manager is, and a namespace that is enabled."""

    def setUp(self) -> None:
        """Start SPIRE."""
        super().setUp()
        self.spire = RunningSpire(entries=[entry("/svc/manager", admin=True)])
        self.stack.callback(self.spire.stop)
        self.spire.start()
        self.before = self.stored()
        self.shop = self.namespace(INJECTION_ENABLED)

    def namespace(self, label: str) -> str:
        """Make a namespace with this value of the label."""
        name = f"t-{uuid4().hex[:8]}"
        self.server.kubectl("create", "namespace", name)
        self.stack.callback(self.label, name, "")
        self.label(name, label)
        return name

    def label(self, name: str, value: str) -> None:
        """Set the label of a namespace; take it off for an empty value."""
        label = f"{LABEL_INJECTION}={value}" if value else f"{LABEL_INJECTION}-"
        self.server.kubectl("label", "namespace", name, label, "--overwrite")

    def account(self, namespace: str, name: str) -> None:
        """Make a service account."""
        self.server.kubectl("create", "serviceaccount", name, "-n", namespace)
        self.stack.callback(
            self.server.kubectl, "delete", "serviceaccount", name, "-n", namespace, "--ignore-not-found"
        )

    def keeping(self, every: str = "1s", *, wait: bool = True) -> RunningManager:
        """Start a replica, and wait until it has kept the entries."""
        spire = {"server": f"127.0.0.1:{self.spire.port}", "spiffeSocketPath": self.spire.address, "every": every}
        manager = RunningManager(self.server, cluster={"trustDomain": "example.org", "spire": spire})
        self.stack.callback(manager.stop)
        manager.launch()
        if wait:
            eventually(manager.is_ready)
            eventually(lambda: manager.value("upkeep_total", result="success", **WHAT))
        return manager

    def at_server(self, call: Callable[[SpireServer], Awaitable[Any]]) -> Any:
        """Use the API of the server by its private socket."""

        async def run() -> Any:
            server = SpireServer.at_socket(str(self.spire.folder / "api.sock"))
            try:
                return await call(server)
            finally:
                server.close()

        return asyncio.run(run())

    def stored(self) -> dict[str, str]:
        """The entries of the server: the path of the SPIFFE ID by the identifier."""
        return {each.id: each.spiffe_id.path for each in self.at_server(lambda server: server.entries())}

    def made(self) -> list[str]:
        """The paths of entries that SPIRE did not have from the start."""
        found = self.stored()
        self.assertEqual(self.before, {name: found.get(name) for name in self.before}, "entries of others stay")
        return sorted(path for name, path in found.items() if name not in self.before)

    def paths(self, *accounts: str) -> list[str]:
        """The paths of the identities of service accounts of the namespace."""
        return [f"/ns/{self.shop}/sa/{each}" for each in sorted(accounts)]

    def until_made(self, *accounts: str) -> None:
        """Wait until the entries are those of these service accounts."""
        eventually(lambda: self.made() == self.paths(*accounts), what=f"entries of {accounts}")

    def entry(self, account: str, owner: str) -> RegistrationEntry:
        """The entry of a service account, as one of another program."""
        (found,) = wanted_entries({self.shop}, [(self.shop, account)], NODES)
        return RegistrationEntry(found.spiffe_id, found.parent_id, found.selectors, owner=owner)


class ServiceAccountTests(EntriesCase):
    """Entries follow the API server."""

    def test_accounts(self) -> None:
        """Accounts of enabled namespaces have entries before any pod runs; without the label, they are gone."""
        self.account(self.shop, "api")
        other = self.namespace("disabled")
        self.account(other, "api")
        self.label("svc-system", INJECTION_ENABLED)
        self.stack.callback(self.label, "svc-system", "")
        self.account("svc-system", "agent")
        manager = self.keeping()
        self.until_made("api")
        wanted = self.entry("api", REGISTRAR).message()
        (message,) = (each for each in self.at_server(lambda server: server.entries()) if each.id not in self.before)
        self.assertEqual(
            (list(wanted.selectors), wanted.parent_id, False),
            (list(message.selectors), message.parent_id, message.admin),
        )
        self.account(self.shop, "web")
        self.until_made("api", "web")
        self.server.kubectl("delete", "serviceaccount", "api", "-n", self.shop)
        self.until_made("web")
        self.label(self.shop, "disabled")
        self.until_made()
        self.label(self.shop, INJECTION_ENABLED)
        self.until_made("web")
        changed = [each["attributes"] for each in manager.records("svc.manager.entries.changed")]
        counted = [(each["created"], each["updated"], each["deleted"], each["refused"]) for each in changed]
        self.assertEqual([(1, 0, 0, 0), (1, 0, 0, 0), (0, 0, 1, 0), (0, 0, 1, 0), (1, 0, 0, 0)], counted)
        self.assertEqual(0.0, manager.value("upkeep_total", result="error", **WHAT))

    def test_same_entry_of_another_program(self) -> None:
        """SPIRE does not take it twice, and it suffices; when it is deleted the manager makes its own."""
        theirs = self.entry("api", REGISTRAR)
        self.at_server(lambda server: server.apply(EntryChanges(create=(theirs,))))
        self.account(self.shop, "api")
        manager = self.keeping()
        self.assertEqual((theirs.id in self.stored(), self.paths("api")), (True, self.made()))
        self.assertEqual(0.0, manager.value("upkeep_total", result="error", **WHAT))
        self.at_server(lambda server: server.apply(EntryChanges(delete=(theirs.id,))))
        self.until_made("api")
        self.assertNotIn(theirs.id, self.stored())

    def test_section_removed(self) -> None:
        """Without the section all entries stay; with it they are made equal again, and a new leader goes on."""
        self.account(self.shop, "api")
        manager = self.keeping()
        self.until_made("api")
        given = manager.config["cluster"]
        self.reload(manager, {"trustDomain": "example.org"})
        done = manager.value("upkeep_total", **WHAT)
        self.account(self.shop, "web")
        self.server.kubectl("delete", "serviceaccount", "api", "-n", self.shop)
        time.sleep(3)
        self.assertEqual((self.paths("api"), done), (self.made(), manager.value("upkeep_total", **WHAT)))
        self.reload(manager, given)
        self.until_made("web")
        successor = self.keeping(wait=False)
        eventually(successor.is_ready)
        manager.signal(signal.SIGTERM)
        eventually(lambda: successor.leads)
        self.account(self.shop, "api")
        self.until_made("api", "web")

    def reload(self, manager: RunningManager, cluster: dict[str, Any]) -> None:
        """Put another section ``cluster`` in force."""
        reloads = lambda: manager.value("config_reloads_total", result="success")  # noqa: E731
        before = reloads()
        manager.config["cluster"] = cluster
        manager.write_config()
        manager.signal(signal.SIGHUP)
        eventually(lambda: reloads() == before + 1)

    def test_api_server_away(self) -> None:
        """Entries stay: neither the leader nor a replica that starts meanwhile takes for empty what it cannot read."""
        self.account(self.shop, "api")
        managers = [self.keeping()]
        self.until_made("api")
        self.stack.callback(self.server.start)
        self.server.kill()
        eventually(lambda: "svc.manager.lease_lost" in managers[0].log)
        managers.append(self.keeping(wait=False))
        eventually(lambda: managers[1].records("svc.manager.kubernetes.failed"))
        self.assertEqual(self.paths("api"), self.made())
        self.server.start()
        done = [each.value("upkeep_total", **WHAT) for each in managers]
        reconciled = lambda: [each.value("upkeep_total", **WHAT) for each in managers]  # noqa: E731
        eventually(lambda: reconciled() != done)
        self.assertEqual(self.paths("api"), self.made())
        changed = [record for each in managers for record in each.records("svc.manager.entries.changed")]
        self.assertEqual([0], [each["attributes"]["deleted"] for each in changed])

    def test_unreadable_accounts(self) -> None:
        """A leader that may not read the service accounts deletes nothing, and does its other work."""
        self.account(self.shop, "api")
        former = self.keeping()
        self.until_made("api")
        former.stop()
        kubectl = self.server.kubectl
        rules = json.loads(kubectl("get", "clusterrole", "svc-manager", "-o", "json"))["rules"]

        def grant(given: list[Any]) -> None:
            kubectl("patch", "clusterrole", "svc-manager", "--type=merge", "-p", json.dumps({"rules": given}))

        self.stack.callback(grant, rules)
        without = [{**each, "resources": [name for name in each["resources"] if name != ACCOUNTS]} for each in rules]
        grant([each for each in without if each["resources"]])
        kubectl("delete", "svclicensestatuses", "--all")
        manager = self.keeping(wait=False)
        self.until_state("Missing")
        forbidden = lambda: [each["detail_reason"] for each in manager.records("svc.manager.kubernetes.failed")]  # noqa: E731
        eventually(lambda: "kubernetes_forbidden" in forbidden())
        eventually(lambda: manager.value("upkeep_total", result="error", **WHAT))
        done = manager.value("upkeep_total", result="success", **WHAT)
        self.assertEqual((self.paths("api"), 0.0), (self.made(), done))
        self.account(self.shop, "web")
        grant(rules)
        self.until_made("api", "web")


class SpireTests(EntriesCase):
    """Entries and a SPIRE that fails."""

    def test_lost_data(self) -> None:
        """With SPIRE's data lost, its keys too, the entries are back within ten seconds."""
        for name in ("api", "web"):
            self.account(self.shop, name)
        self.keeping("5s")
        self.until_made("api", "web")
        self.spire.lose_data()
        began = time.monotonic()
        self.before = {name: path for name, path in self.stored().items() if not name.startswith(ENTRY_OWNER)}
        self.until_made("api", "web")
        self.assertLess(time.monotonic() - began, 10)

    def test_workload_api_away(self) -> None:
        """Its failures are counted; licenses need no SVID, and entries are kept by the one that there was."""
        self.account(self.shop, "api")
        hidden = self.spire.socket_path.with_suffix(".hidden")
        self.spire.socket_path.rename(hidden)
        manager = self.keeping(wait=False)
        failures = lambda: manager.value("agent_sources_sync_errors_total")  # noqa: E731
        eventually(manager.is_ready)
        eventually(lambda: failures() >= 2)
        self.until_state("Missing")
        eventually(lambda: manager.records("svc.manager.reconcile.failed"))
        failed = manager.records("svc.manager.reconcile.failed")[0]
        self.assertEqual(
            ("credentials_missing", "entries"), (failed["detail_reason"], failed["attributes"]["controller"])
        )
        hidden.rename(self.spire.socket_path)
        self.until_made("api")
        before = failures()
        self.spire.kill("agent")
        eventually(lambda: failures() >= before + 2)
        self.account(self.shop, "web")
        self.until_made("api", "web")
        self.assertEqual(0.0, manager.value("reconcile_total", result="error", controller="license-status"))

    def test_refused_entry(self) -> None:
        """An entry that the server cannot store is counted and logged, and made when it can."""
        manager = self.keeping()
        with closing(sqlite3.connect(self.spire.folder / "server" / "datastore.sqlite3")) as database:
            database.execute("BEGIN IMMEDIATE")
            self.account(self.shop, "api")
            eventually(lambda: manager.value("upkeep_total", result="error", **WHAT))
            database.rollback()
        self.until_made("api")
        reasons = [each["detail_reason"] for each in manager.records("svc.manager.reconcile.failed")]
        self.assertIn("entry_refused", reasons)

    def test_no_administrator(self) -> None:
        """The refusal says what to do, and the entries follow when the manager may make them."""
        (own,) = (name for name, path in self.before.items() if path == "/svc/manager")
        self.account(self.shop, "api")
        self.spire.update(own, entry("/svc/manager"))
        manager = self.keeping(wait=False)
        refused = lambda: [each["detail_reason"] for each in manager.records("svc.manager.reconcile.failed")]  # noqa: E731
        eventually(lambda: "entries_refused" in refused())
        self.spire.update(own, entry("/svc/manager", admin=True))
        self.until_made("api")
