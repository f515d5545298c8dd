"""Policy files of a real proxy: what a change of a file does to requests and to open connections."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

ID = "spiffe://example.org/ns/shop/sa/api"
#: Seconds until a change is in force: two looks, one a second, on a machine that may be slow.
SOON = 30.0


def document(*rules: dict[str, Any], action: str = "Allow", mode: str = "Enforce", name: str = "shop") -> str:
    """A policy; JSON is YAML."""
    authorization = {"action": action, "mode": mode, "rules": list(rules)}
    policy = {
        "apiVersion": "svc.internal/v1alpha1",
        "kind": "SvcClusterPolicy",
        "metadata": {"name": name},
        "spec": {"authorization": authorization},
    }
    return json.dumps(policy)


def rule(name: str, *paths: str) -> dict[str, Any]:
    """A rule for clients of the namespace."""
    return {"name": name, "from": [{"namespaces": ["shop"]}], "to": [{"paths": list(paths)}]}


class PolicyFileTests(SynchronousTestCase):
    """One proxy, and a folder of policy files."""

    def setUp(self) -> None:
        """Start it with a policy for two paths."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)
        self.write(document(rule("first", "/bytes/*", "/socket")))
        authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        settings = {"policy": {"files": [f"{self.folder}/*.yaml"]}, "accessLog": "path"}
        application = f"127.0.0.1:{webapp.start(stack)}"
        self.proxy = stack.enter_context(RunningProxy(authority, application, settings=settings))
        self.credentials = Credentials.fetch(authority, short_folder(stack))

    def write(self, text: str, name: str = "a.yaml") -> None:
        """Replace a file as editors and Kubernetes do."""
        new = Path(self.folder, name + ".new")
        new.write_text(text)
        os.rename(new, Path(self.folder, name))

    def connect(self) -> RawConnection:
        """A connection of a client in the namespace."""
        return RawConnection(self.proxy.port, self.credentials)

    def status(self, target: str, connection: RawConnection | None = None) -> int:
        """The status of a request."""
        return (connection or self.connect()).request(target).status

    def events(self, name: str) -> list[dict[str, Any]]:
        """Records of an event."""
        return self.proxy.records(f"svc.proxy.policy.{name}")

    def loaded(self, before: int) -> None:
        """Wait until other policies are in force."""
        eventually(lambda: len(self.events("loaded")) > before, SOON, "other policies in force")

    def test_change(self) -> None:
        """A change of a file allows and denies within seconds, also on open connections; a bad file changes nothing."""
        connection = self.connect()
        self.assertEqual((200, 403), (self.status("/bytes/1", connection), self.status("/status/204", connection)))
        self.write(document(rule("second", "/status/*")))
        eventually(lambda: self.status("/status/204") == 204, SOON, "the new policy in force")
        self.assertEqual((403, 204), (self.status("/bytes/1", connection), self.status("/status/204", connection)))
        self.write(document(rule("third", "relative")))
        self.write(document(rule("fourth", "/bytes/*"), name="more"), "b.yaml")
        rejected = eventually(lambda: self.events("rejected"), SOON, "the refusal of the file")[0]
        self.assertIn("a.yaml is not valid: spec.authorization.rules[0].to[0].paths[0]: 'relative'", rejected["detail"])
        self.assertEqual((403, 204), (self.status("/bytes/1"), self.status("/status/204")))
        self.write(document(rule("third", "/head")))
        eventually(lambda: self.status("/bytes/1") == 200, SOON, "both files in force")
        self.assertEqual((403, 200), (self.status("/status/204"), self.status("/head")))
        self.assertEqual(2.0, self.proxy.metric("svc_proxy_policy_reloads_total", result="success"))
        self.assertGreaterEqual(self.proxy.metric("svc_proxy_policy_reloads_total", result="error"), 1.0)
        served = self.proxy.records("svc.proxy.request.served")[0]["attributes"]
        self.assertEqual(("shop", "first"), (served["policy"], served["rule"]))

    def test_reload(self) -> None:
        """SIGHUP applies configuration and policy files together, or neither."""
        before = len(self.proxy.records("svc.config.reloaded"))

        def reloaded() -> dict[str, Any]:
            self.proxy.write_config()
            self.proxy.signal(signal.SIGHUP)
            found = eventually(
                lambda: self.proxy.records("svc.config.reloaded")[before:], SOON, "the end of the reload"
            )
            return dict(found[0])

        other = Path(self.folder, "other.yml")
        other.write_text("kind: SvcSomething")
        self.proxy.config["policy"] = {"default": "allow", "files": [str(other)]}
        refused = reloaded()
        self.assertEqual("failure", refused["event"]["outcome"])
        self.assertIn("other.yml is not valid: kind: 'SvcSomething'", refused["detail"])
        self.assertEqual(403, self.status("/status/204"))
        before += 1
        other.write_text(document(rule("no", "/head"), action="Deny"))
        self.assertEqual("success", reloaded()["event"]["outcome"])
        self.assertEqual((204, 403), (self.status("/status/204"), self.status("/head")))

    def test_open_connections(self) -> None:
        """An upgraded connection whose request would be refused is cut; a keep-alive connection goes on."""
        joined, idle = self.connect(), self.connect()
        self.assertEqual(200, self.status("/bytes/1", idle))
        answer = joined.request("/socket", fields="Connection: Upgrade\r\nUpgrade: chat\r\n")
        self.assertEqual(101, answer.status)
        joined.send(b"hello")
        self.assertEqual(b"hello", joined.exactly(5))
        before = len(self.events("loaded"))
        self.write(document(rule("second", "/bytes/*")))
        self.loaded(before)
        self.assertRaises(OSError, joined.exactly, 1)
        self.assertEqual(200, self.status("/bytes/1", idle))
        deny = {
            "apiVersion": "svc.internal/v1alpha1",
            "kind": "SvcDenyList",
            "metadata": {"name": "stolen"},
            "spec": {"spiffeIDs": [ID]},
        }
        self.write(json.dumps(deny), "b.yaml")
        self.loaded(before + 1)
        self.assertRaises(OSError, idle.request, "/bytes/1")
        refused = self.connect().request("/.well-known/svc-notary")
        self.assertEqual(403, refused.status)
        decision = json.loads(refused.body)["decision"]
        denied = eventually(
            lambda: [
                each
                for each in self.proxy.records("svc.proxy.request.served")
                if each["attributes"].get("decision") == decision
            ],
            SOON,
            "the record of the refusal",
        )
        self.assertEqual(
            ("stolen", f"identity {ID}"), tuple(denied[0]["attributes"][name] for name in ("policy", "rule"))
        )

    def test_dry_run_and_audit(self) -> None:
        """A dry run is counted and logged and changes nothing; each request of an Audit rule has an audit record."""
        self.write(document(rule("closed", "/bytes/2"), action="Deny", mode="DryRun", name="trial"), "b.yaml")
        self.write(document(rule("seen", "/bytes/3"), action="Audit", name="audit"), "c.yaml")
        eventually(lambda: self.events("loaded")[-1]["attributes"]["policies"] == 3, SOON, "three policies in force")
        for number in (1, 2, 3, 3):
            self.assertEqual(200, self.status(f"/bytes/{number}"))
        for result, count in (("allowed", 3.0), ("denied", 1.0)):
            found = self.proxy.metric("svc_proxy_policy_dry_run_total", result=result, protocol="http")
            self.assertEqual(count, found)
        [trial] = eventually(lambda: self.events("dry_run"), SOON, "the record of the dry run")
        self.assertEqual(
            ("trial", "closed", "denied"), tuple(trial["attributes"][n] for n in ("policy", "rule", "result"))
        )
        audited = eventually(lambda: len(self.events("audited")) == 2 and self.events("audited"), SOON, "audit records")
        self.assertEqual({("audit", "seen")}, {(e["attributes"]["policy"], e["attributes"]["rule"]) for e in audited})
