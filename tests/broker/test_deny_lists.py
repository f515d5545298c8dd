"""Clients on deny lists: refused at CONNECT, disconnected when a list changes, and what becomes of their sessions."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, Principal, Rules
from svc.broker.broker import Broker
from svc.broker.config import BrokerSettings
from svc.broker.errors import BrokerError
from svc.broker.evidence import EvidenceCheck
from svc.identity.matchers import parse_matcher
from svc.policy.denylist import DenyList
from svc.policyfiles.settings import Policies
from svc.settings import ConfigInvalid, parse
from svc.transport.evidence import PeerEvidence
from svc.wire.mqtt import (
    Connack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
)
from tests.broker.test_connection import Wire
from tests.broker.test_reauthorization import ReauthorizationCase

RULES = Rules((AccessRule(parse_matcher("spiffe://example.org/*"), ("#",), ("#",)), AccessRule(None, (), ("#",))))
LASTING = Properties(session_expiry=3600)
FILE = """
trustDomain: example.org
policy: {files: [/etc/svc/deny.yaml]}
listeners:
  - {name: devices, listen: ":8883", tls: {spiffe: true}, acl: []}
"""


class DenyListTests(ReauthorizationCase):
    """A broker whose deny lists the test sets."""

    def setUp(self) -> None:
        """Start it without any."""
        super().setUp()
        self.lists = Policies.of()
        self.broker = Broker(
            self.clock, RULES, wall=lambda: self.now.timestamp(), check=EvidenceCheck(lambda: self.lists)
        )
        self.broker.startService()

    def deny(self, *lists: DenyList) -> None:
        """Put lists into force."""
        self.lists = Policies.of(denied=lists)
        self.broker.rules_changed()
        self.clock.pump([0] * 3)

    def identity(self, text: str) -> DenyList:
        """A list with an identity."""
        return DenyList("stolen", (parse_matcher(text),))

    def certificate(self, evidence: PeerEvidence) -> DenyList:
        """A list with the certificate of a client."""
        return DenyList("stolen", certificates=frozenset({evidence.svid.certificate_sha256}))

    def test_connect(self) -> None:
        """A listed identity, and a listed certificate of another, are refused with the code of each version."""
        other = self.evidence("/other")
        self.deny(self.identity("spiffe://example.org/device"), self.certificate(other))
        for evidence in (self.evidence(), other):
            for version, code in ((Version.V5, ReasonCode.NOT_AUTHORIZED), (Version.V311, 5)):
                wire = Wire(self.broker, version, evidence)
                self.assertEqual([Connack(False, code)], wire.sends(Connect("c", version)))
                self.assertTrue(wire.ended)
        self.assertEqual({"mqtt_deny_list": 4}, self.broker.hub.statistics.refused)
        self.assertEqual({}, self.broker.hub.sessions)
        self.assertFalse(self.client("a").ended)
        self.assertFalse(self.client("b", self.evidence("/other")).ended)

    def test_reason(self) -> None:
        """The error names the client, the list and the entry."""
        self.lists = Policies.of(denied=[self.identity("spiffe://example.org/*")])
        who = Principal(self.evidence().svid.spiffe_id)
        error = self.assertRaises(BrokerError, self.broker.hub.check_may_connect, who)
        self.assertEqual(
            "spiffe://example.org/device is refused by the deny list stolen: identity spiffe://example.org/*",
            str(error),
        )

    def test_open_connections(self) -> None:
        """Exactly the listed ones are disconnected, counted once, with their wills published."""
        watcher = self.client("watcher")
        watcher.sends(Subscribe(1, [Subscription("wills")]))
        stolen = self.evidence("/b")
        by_identity, by_certificate = self.client("a", self.evidence()), self.client("b", stolen)
        renewed, old = self.client("b2", self.evidence("/b")), self.client("old", self.evidence(), Version.V311)
        for _ in range(2):
            self.deny(self.identity("spiffe://example.org/device"), self.certificate(stolen))
        for wire in (by_identity, by_certificate):
            self.assertEqual([Disconnect(ReasonCode.NOT_AUTHORIZED)], wire.receives())
        self.assertEqual([True, True, True, False, False], [
            each.ended for each in (by_identity, by_certificate, old, renewed, watcher)
        ])  # fmt: skip
        self.assertEqual({"mqtt_deny_list": 3}, self.broker.hub.statistics.refused)
        wills = {each.payload for each in watcher.receives() if isinstance(each, Publish)}
        self.assertEqual({b"a", b"b", b"old"}, wills)

    def test_sessions(self) -> None:
        """Sessions of a listed identity end, connected or not; those of one with a listed certificate stay."""
        stolen = self.evidence("/b")
        for name, evidence in (("here", self.evidence()), ("away", self.evidence()), ("kept", stolen)):
            wire = Wire(self.broker, evidence=evidence)
            wire.sends(Connect(name, properties=LASTING))
            if name == "away":
                wire.sends(Disconnect())
        self.deny(self.identity("spiffe://example.org/device"), self.certificate(stolen))
        self.assertEqual(["kept"], list(self.broker.hub.sessions))
        wire = Wire(self.broker, evidence=self.evidence("/b"))
        [connack] = wire.sends(Connect("kept", clean_start=False, properties=LASTING))
        assert isinstance(connack, Connack)
        self.assertTrue(connack.session_present)

    def test_removed(self) -> None:
        """An entry that is removed admits again."""
        self.deny(self.identity("spiffe://example.org/device"))
        self.deny()
        self.assertFalse(self.client("c", self.evidence()).ended)

    def test_before_connect(self) -> None:
        """A connection without CONNECT is decided on then."""
        wire = Wire(self.broker, evidence=self.evidence())
        self.deny(self.identity("spiffe://example.org/device"))
        self.assertFalse(wire.ended)
        self.assertEqual([Connack(False, ReasonCode.NOT_AUTHORIZED)], wire.sends(Connect("c")))


class ConfigurationTests(SynchronousTestCase):
    """The section ``policy``."""

    def test_needs_identities(self) -> None:
        """Deny lists without a listener whose clients have an identity are an error."""
        self.assertEqual(("/etc/svc/deny.yaml",), parse(FILE, BrokerSettings).policy.files)
        plain = FILE.replace('":8883", tls: {spiffe: true}', '"127.0.0.1:1883"')
        error = self.assertRaises(ConfigInvalid, parse, plain, BrokerSettings)
        self.assertIn("a listener with tls.spiffe: policy.files refuses identities", str(error))
        for files in ("deny.yaml", ", ".join(f"/{number}" for number in range(65))):
            self.assertRaises(ConfigInvalid, parse, FILE.replace("/etc/svc/deny.yaml", files), BrokerSettings)
        most = ", ".join(f"/{number}" for number in range(64))
        self.assertEqual(64, len(parse(FILE.replace("/etc/svc/deny.yaml", most), BrokerSettings).policy.files))
