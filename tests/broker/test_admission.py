"""Who may have a session at all: a client to which no rule of access could apply is refused in CONNACK."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, AllowAll, ListenerGuard, Principal, Rules
from svc.broker.journal import RecoveredSession, RecoveredState, SessionRecord
from svc.broker.message import Message
from svc.identity import SpiffeID
from svc.identity.matchers import AnyOf, parse_matcher
from svc.identity.spiffeid import SpiffeIdMalformed
from svc.wire.mqtt import Connack, Properties, ReasonCode, Subscription, Version, Will
from tests.broker.keeping import KeptCase
from tests.broker.rig import Rig
from tests.broker.test_resuming import Changing

DEVICE, OTHER = "spiffe://example.org/device/7", "spiffe://example.org/other"
FEDERATED = "spiffe://partner.example/device/7"
LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}


def rules(*matchers: str | None) -> Rules:
    """Rules about these identities, which allow everything; None is anonymous clients."""
    return Rules(tuple(AccessRule(each and parse_matcher(each), ("#",), ("#",)) for each in matchers))  # type: ignore[arg-type]


def principal(who: str | None, listener: str = "") -> Principal:
    """A client of a listener."""
    return Principal(None if who is None else SpiffeID.parse(who), listener=listener)


class MayConnectTests(SynchronousTestCase):
    """Which identities a rule could apply to."""

    def test_identity_part(self) -> None:
        """An exact ID, a path prefix, a trust domain and a union admit the identities that they match only."""
        for matcher, admitted in (
            (DEVICE, {DEVICE}),
            ("spiffe://example.org/device/*", {DEVICE}),
            ("spiffe://example.org/*", {DEVICE, OTHER}),
            ("spiffe://partner.example/*", {FEDERATED}),
            (None, {None}),
        ):
            guard = rules(matcher)
            found = {each for each in (DEVICE, OTHER, FEDERATED, None) if guard.may_connect(principal(each))}
            self.assertEqual(found, admitted, matcher)
        union = Rules((AccessRule(AnyOf((parse_matcher(OTHER), parse_matcher(FEDERATED))), ("#",)),))
        self.assertEqual([union.may_connect(principal(each)) for each in (DEVICE, OTHER, FEDERATED)], [0, 1, 1])

    def test_without_rights(self) -> None:
        """A rule that allows nothing admits its identities all the same; without any rule no client is admitted."""
        self.assertTrue(Rules((AccessRule(parse_matcher(DEVICE)),)).may_connect(principal(DEVICE)))
        for who in (DEVICE, None):
            self.assertFalse(Rules(()).may_connect(principal(who)))
            self.assertTrue(AllowAll().may_connect(principal(who)))

    @given(st.lists(st.sampled_from([DEVICE, OTHER, FEDERATED, None, "spiffe://example.org/*"]), max_size=3))
    def test_never_refused_with_a_right(self, matchers: list[str | None]) -> None:
        """A client that may publish or subscribe to anything may connect."""
        guard = rules(*matchers)
        for who in (DEVICE, OTHER, FEDERATED, None):
            each = principal(who)
            self.assertEqual(guard.may_publish(each, "t") or guard.may_subscribe(each, "t"), guard.may_connect(each))


class OwnerTests(SynchronousTestCase):
    """The owner of a session, as it is stored."""

    def test_round_trip(self) -> None:
        """It is read back as the identity, or as the anonymous clients of a listener."""
        for each in (principal(DEVICE), principal(None, "local"), principal(None, "")):
            self.assertEqual(Principal.from_owner(each.owner), each)
        # The listener of an identity is not stored: the session may be resumed at another one.
        self.assertEqual(Principal.from_owner(principal(DEVICE, "devices").owner), principal(DEVICE))

    def test_anything_else(self) -> None:
        """Any other text is no owner."""
        for text in ("", "anonymous", "anonymouslocal", "https://example.org/x", "spiffe://"):
            self.assertRaises(SpiffeIdMalformed, Principal.from_owner, text)


class ConnectTests(SynchronousTestCase):
    """CONNECT of a client that no rule names."""

    def test_refused(self) -> None:
        """It gets CONNACK 0x87 or return code 5, leaves no session, and the error names identity and listener."""
        rig = Rig(rules("spiffe://example.org/device/*"))
        for who, shown in ((OTHER, OTHER), (FEDERATED, FEDERATED), (None, "anonymous clients")):
            for version, code in ((Version.V5, ReasonCode.NOT_AUTHORIZED), (Version.V311, 5)):
                more = LASTING if version is Version.V5 else {"clean_start": False}
                peer = rig.connect("c", version, who=who, listener="devices", read_answer=False, **more)
                self.assertEqual(peer.reason, "mqtt_no_rule")
                self.assertEqual(str(peer.error), f"no access rule of the listener 'devices' applies to {shown}")
                self.assertEqual(peer.got, [Connack(False, code)])
        self.assertEqual(rig.hub.sessions, {})
        self.assertIsNone(rig.connect("c", who=DEVICE).error)

    def test_session_of_another_listener_stays(self) -> None:
        """An identity that is refused at one listener keeps the session that rules of another one allow."""
        guard = ListenerGuard({"wide": rules(DEVICE), "narrow": rules(OTHER)}, {"wide", "narrow"})
        rig = Rig(guard)
        client = rig.connect("c", who=DEVICE, listener="wide", **LASTING)
        self.assertEqual(rig.connect("c", who=DEVICE, listener="narrow", **LASTING).reason, "mqtt_no_rule")
        self.assertIsNone(client.closed)
        self.assertIn("c", rig.hub.sessions)

    def test_session_without_permission(self) -> None:
        """Where no rule applies to the owner any more, its attempt to resume ends the session and its connection."""
        rig = Rig(guard := Changing(rules(DEVICE, OTHER, None)))
        watcher = rig.connect("watcher")
        watcher.subscribes("will")
        open_one = rig.connect("open", who=DEVICE, will=Will("will", b"gone"), **LASTING)
        rig.connect("away", who=DEVICE, **LASTING).loses()
        rig.connect("other", who=OTHER, **LASTING).loses()
        guard.rules = rules(None, OTHER)
        for name in ("open", "away", "other"):
            self.assertEqual(rig.connect(name, who=DEVICE, **LASTING).reason, "mqtt_no_rule")
        self.assertEqual(set(rig.hub.sessions), {"watcher", "other"})
        self.assertEqual(open_one.closed, ReasonCode.SESSION_TAKEN_OVER)
        self.assertEqual(len(watcher.messages), 1)
        self.assertEqual(rig.hub.statistics.revoked, 2)


class StartTests(SynchronousTestCase):
    """What a start does with sessions whose owner no rule names any more."""

    def record(self, name: str, owner: str, **more: Any) -> RecoveredSession:
        """A session that was kept, with one subscription."""
        now = 1_800_000_000.0
        session = SessionRecord(name, owner, Version.V5, 3600, now - 1, more.get("will"), more.get("due"))
        return RecoveredSession(session, [(Subscription("t", 1), None)])

    def test_ended(self) -> None:
        """They end at once with their subscriptions, and are counted; the others stay."""
        guard = ListenerGuard(
            {"local": AllowAll(), "guests": rules(), "devices": rules("spiffe://example.org/device/*")}, {"devices"}
        )
        rig = Rig(guard)
        owners = {
            "device": DEVICE,
            "other": OTHER,
            "federated": FEDERATED,
            "local": "anonymous local",
            "guest": "anonymous guests",
            "listener that is gone": "anonymous old",
            "damaged": "nobody",
        }
        rig.hub.restore(RecoveredState([self.record(name, owner) for name, owner in owners.items()]))
        self.assertEqual(set(rig.hub.sessions), {"device", "local"})
        self.assertEqual(len(rig.hub.subscriptions), 2)
        self.assertEqual(rig.hub.statistics.revoked, 5)

    def test_will(self) -> None:
        """A will that was allowed when its client connected is published to those who stay."""
        rig = Rig(rules(DEVICE))
        gone = self.record("gone", OTHER, will=Will("t", b"gone", 1), due=1_900_000_000.0)
        rig.hub.restore(RecoveredState([gone, self.record("stays", DEVICE)]))
        back = rig.connect("stays", who=DEVICE, **LASTING)
        self.assertEqual([each.payload for each in back.messages], [b"gone"])


class KeptTests(KeptCase):
    """The same over the database."""

    def test_rows_are_gone(self) -> None:
        """A session that ended at the start is not in the database at the next one."""
        client = self.persistent("c", "t", who=DEVICE)
        client.loses()
        self.rig.hub.publish(Message("t", b"m", 1))
        self.kept.settle()
        self.assertEqual((self.kept.rows("session"), self.kept.rows("delivery")), (1, 1))
        self.kept.crash()
        self.rig = self.kept.rig(self.rig.clock.now, guard=rules(OTHER))
        self.assertEqual(self.rig.hub.sessions, {})
        self.kept.settle()
        tables = ("session", "subscription", "message", "delivery")
        self.assertEqual([self.kept.rows(each) for each in tables], [0, 0, 0, 0])
