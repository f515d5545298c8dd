"""A session is resumed under the access rules in force then, not under those of its beginning."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, AllowAll, Guard, ListenerGuard, Principal, Rules
from svc.identity import SpiffeID
from svc.identity.matchers import ExactID
from svc.wire.mqtt import Connack, Connect, Properties, Subscription, Version
from tests.broker.rig import ANYTHING, Peer, Rig

NARROW = Rules((AccessRule(None, ("t",), ("own/#",)),))
LASTING = Properties(session_expiry=100)


class Changing:
    """A guard whose rules a test exchanges."""

    def __init__(self, first: Guard = ANYTHING) -> None:
        self.rules = first

    def may_connect(self, principal: Principal) -> bool:
        """Evaluate the current rules."""
        return self.rules.may_connect(principal)

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Evaluate the current rules."""
        return self.rules.may_publish(principal, topic)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Evaluate the current rules."""
        return self.rules.may_subscribe(principal, topic_filter)


class ResumingTests(SynchronousTestCase):
    """Sessions that last, and rules that changed meanwhile."""

    def setUp(self) -> None:
        """All clients may do everything, at first."""
        self.guard = Changing()
        self.rig = Rig(self.guard)

    def away(self, topic_filter: str, version: Version = Version.V5) -> None:
        """Let a client subscribe and go, and a message wait for it."""
        client = self.connects(version)
        client.take()
        client.subscribes(Subscription(topic_filter, 1))
        client.loses()
        self.rig.connect("p").publishes("own/secret", b"m", 1)

    def connects(self, version: Version) -> Peer:
        """Connect with a session that lasts."""
        properties = LASTING if version is Version.V5 else Properties()
        return self.rig.connect("c", version, read_answer=False, clean_start=False, properties=properties)

    def present(self, client: Peer) -> bool:
        """Whether CONNACK, which comes first, has Session Present."""
        answer = client.got[0]
        assert isinstance(answer, Connack) and answer.code == 0
        return answer.session_present

    def test_what_is_no_longer_allowed(self) -> None:
        """Where one subscription would now be refused, the session is replaced: no queued message is delivered."""
        for version in Version:
            self.guard.rules = ANYTHING
            self.away("own/#", version)
            self.guard.rules = Rules((AccessRule(None, ("own/secret",)),))
            client = self.connects(version)
            self.assertFalse(self.present(client))
            self.assertEqual(client.messages, [])
            self.assertEqual(len(self.rig.hub.subscriptions), 0)
            self.rig.connect("p").publishes("own/secret", b"m", 1)
            self.assertEqual(client.messages, [])
            client.loses()
        self.assertEqual(self.rig.hub.statistics.denied["subscribe"], 2)

    def test_what_is_still_allowed(self) -> None:
        """Narrower rules that cover all of its subscriptions change nothing."""
        self.away("own/#")
        self.guard.rules = NARROW
        client = self.connects(Version.V5)
        self.assertTrue(self.present(client))
        self.assertEqual([each.payload for each in client.messages], [b"m"])
        self.assertEqual(self.rig.hub.statistics.denied["subscribe"], 0)

    def test_at_another_listener(self) -> None:
        """An identity does not carry to one listener what another one gave it."""
        packet = Connect("c", Version.V5, clean_start=False, properties=LASTING)
        somebody = SpiffeID.parse("spiffe://example.org/somebody")
        hub = Rig(ListenerGuard({"": Rules((AccessRule(ExactID(somebody)),)), "local": AllowAll()})).hub
        session = hub.admit(packet, Principal(somebody, listener="local")).session
        hub.subscribe(session, Subscription("#", 1), None)
        self.assertTrue(hub.admit(packet, Principal(somebody, listener="local")).present)
        self.assertFalse(hub.admit(packet, Principal(somebody)).present)
        self.assertEqual(len(hub.subscriptions), 0)
