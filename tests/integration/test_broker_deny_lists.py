"""Deny lists of a real broker: files that change, at CONNECT and for open connections, and files that are not valid."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Connack, Connect, Disconnect, Publish, ReasonCode, Subscribe, Subscription, Version, Will
from tests.integration.test_broker_identities import Site, make_broker
from tests.peers.broker import RunningBroker
from tests.peers.waiting import eventually

REFUSED = ReasonCode.NOT_AUTHORIZED
DEVICE = "spiffe://example.org/device/7"


def deny_list(**spec: Any) -> str:
    """A list; JSON is YAML."""
    document = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcDenyList", "metadata": {"name": "stolen"}}
    return json.dumps({**document, "spec": spec})


class _Site(Site):
    """The broker of the identity tests, with a folder of deny lists."""

    def _broker(self) -> RunningBroker:
        self.lists = self.folder / "lists"
        self.lists.mkdir()
        return make_broker(self.stack, self.authority, policy={"files": [f"{self.lists}/*.yaml"]})

    def write(self, text: str) -> None:
        """Replace the list as editors do."""
        new = self.lists / "new"
        new.write_text(text)
        os.rename(new, self.lists / "a.yaml")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Records of deny lists."""
        return self.broker.records(f"svc.broker.deny_lists.{name}")

    def deny(self, text: str) -> None:
        """Write a list and wait until it is in force."""
        before = len(self.events("loaded"))
        self.write(text)
        eventually(lambda: len(self.events("loaded")) > before, what="the list in force")

    def refused(self) -> float:
        """How many clients deny lists refused."""
        return self.broker.metric("svc_broker_refusals_total", reason="mqtt_deny_list")


class DenyListTests(SynchronousTestCase):
    """One broker."""

    def setUp(self) -> None:
        """Start it without a list."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.site = _Site(stack)

    def attempt(self, version: Version) -> list[Any]:
        """What a listed client gets."""
        raw = self.site.open("device", version)
        raw.send(Connect("c", version))
        return raw.until_end()

    def test_identity(self) -> None:
        """Open connections of a listed identity end, and new ones are refused, in log and metric; others stay."""
        site = self.site
        control, other = site.client("control"), site.client("other")
        control.send(Subscribe(1, [Subscription("devices/#", 0)]))
        control.sync()
        open_clients = [site.client("device", version=each) for each in (Version.V5, Version.V311)]
        willing = site.client("device", "willing", will=Will("devices/7/state", b"gone"))
        site.deny(deny_list(spiffeIDs=[DEVICE]))
        self.assertEqual([Disconnect(REFUSED)], open_clients[0].until_end())
        self.assertEqual([], open_clients[1].until_end())
        self.assertEqual([Disconnect(REFUSED)], willing.until_end())
        for version, code in ((Version.V5, int(REFUSED)), (Version.V311, 5)):
            self.assertEqual([Connack(False, code)], self.attempt(version))
        self.assertEqual([b"gone"], [each.payload for each in control.sync() if isinstance(each, Publish)])
        self.assertEqual(([], False), (other.sync(), other.ended))
        self.assertEqual(5, site.refused())

        def logged(name: str) -> list[dict[str, Any]]:
            # One a second of a reason and an address is logged.
            self.attempt(Version.V5)
            return site.broker.records(f"svc.broker.client.{name}")

        for name in ("broken", "refused"):
            record = eventually(lambda name=name: logged(name))[0]
            self.assertEqual(("mqtt_deny_list", DEVICE), (record["detail_reason"], record["peer_spiffe_id"]))
            self.assertIn("deny list stolen: identity", record["detail"])
        site.deny(deny_list(spiffeIDs=["spiffe://example.org/nobody"]))
        self.assertFalse(site.client("device").ended)
        self.assertEqual(2, site.broker.metric("svc_broker_config_reloads_total", result="success"))

    def test_certificate(self) -> None:
        """Of one identity the connections with the listed certificate end, those with another one stay."""
        site = self.site
        stolen, renewed = site.open("device", folder="stolen"), site.client("device", "renewed")
        self.assertEqual(0, stolen.connect("stolen").code)
        pem = (site.folder / "stolen" / "device" / "chain.pem").read_bytes()
        certificate = x509.load_pem_x509_certificate(pem)
        site.deny(deny_list(certificates=[{"sha256": certificate.fingerprint(SHA256()).hex()}]))
        self.assertFalse(site.client("control").ended)
        self.assertEqual(([], False), (renewed.sync(), renewed.ended))
        self.assertEqual(([Disconnect(REFUSED)], True), (stolen.until_end(), stolen.ended))

    def test_files_that_are_not_valid(self) -> None:
        """They change nothing, are logged once and counted; a policy among them is an error."""
        site = self.site
        client = site.client("device")
        policy = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcClusterPolicy", "metadata": {"name": "p"}}
        site.write(json.dumps({**policy, "spec": {"authorization": {}}}))
        rejected = eventually(lambda: site.events("rejected"), what="the refusal of the file")
        self.assertIn("kind: 'SvcClusterPolicy': expected one of SvcDenyList", rejected[0]["detail"])
        self.assertEqual(1, site.broker.metric("svc_broker_config_reloads_total", result="error"))
        self.assertEqual(([], False), (client.sync(), client.ended))
        self.assertEqual(1, len(site.events("rejected")))

    def test_start(self) -> None:
        """A broker does not start with a file that is not valid, and says what is wrong with it."""
        site = self.site
        site.broker.kill()
        site.write("kind: SvcDenyList")
        self.assertEqual(1, site.broker.launch().wait(60))
        self.assertIn("a.yaml: apiVersion: missing", site.broker.errors)
        site.write(deny_list(spiffeIDs=[DEVICE]))
        site.broker.start()
        self.assertEqual([Connack(False, REFUSED)], self.attempt(Version.V5))
