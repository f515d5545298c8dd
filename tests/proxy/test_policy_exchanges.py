"""Exchanges under policies: answers, levels, and what happens to open connections when the policies change."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import ExactID
from svc.notary.level import Level
from svc.policy.denylist import DenyList
from svc.policy.rules import Action, Rule
from svc.policyfiles.settings import Policies
from tests.proxy.policies import admit_domain, admit_nobody, allow_paths, path_rule, policy
from tests.proxy.rig import CALLER, Rig, Wire

UPGRADE = b"GET /chat HTTP/1.1\r\nHost: api\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def get(path: bytes) -> bytes:
    """A request."""
    return b"GET %b HTTP/1.1\r\nHost: api\r\n\r\n" % path


class AnswerTests(SynchronousTestCase):
    """What clients get."""

    def test_refusal(self) -> None:
        """The answer has the id that the reports have, another one for each request, and names no rule."""
        rig = Rig(policies=allow_paths("/open"))
        client, wire = rig.client()
        seen = set()
        for number in range(2):
            client.dataReceived(get(b"/a"))
            head, _, body = wire.take().partition(b"\r\n\r\n")
            document: dict[str, Any] = json.loads(body)
            self.assertTrue(head.startswith(b"HTTP/1.1 403 "))
            self.assertEqual("policy_deny", document["code"])
            self.assertNotIn(b"default-deny", body)
            decision = rig.reporter.decisions[number]
            assert decision is not None
            self.assertEqual(("default-deny", "default-deny", document["decision"]), _parts(decision))
            self.assertEqual(decision, rig.reporter.summaries[number].decision)
            seen.add(document["decision"])
        self.assertEqual(2, len(seen))

    def test_permitted(self) -> None:
        """The summary of a permitted request has policy and rule; that of a look-up has none."""
        rig = Rig(policies=allow_paths("/open"))
        client, _wire = rig.client()
        client.dataReceived(get(b"/open"))
        rig.respond(OK)
        client.dataReceived(get(b"/.well-known/svc-notary"))
        served, lookup = rig.reporter.summaries
        assert served.decision is not None
        self.assertEqual(("p", "open", ""), _parts(served.decision))
        self.assertIsNone(lookup.decision)

    def test_ambiguous_path(self) -> None:
        """A path that has two readings is refused with its reason where rules look at paths, and only there."""
        rig = Rig(policies=allow_paths("/open/*"))
        client, wire = rig.client()
        client.dataReceived(get(b"/open/%2e%2e/admin"))
        answer = wire.take()
        self.assertTrue(answer.startswith(b"HTTP/1.1 400 "))
        self.assertEqual("path_ambiguous", json.loads(answer.partition(b"\r\n\r\n")[2])["code"])
        self.assertEqual(["path_ambiguous"], rig.reporter.failures)
        labels = {"result": "denied", "reason": "policy_deny", "protocol": "http", "role": "server"}
        self.assertEqual(1.0, rig.registry.get_sample_value("svc_proxy_auth_decisions_total", labels))
        self.assertEqual([], rig.endpoint.connections)
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(get(b"/open/%2e%2e/admin"))
        self.assertIn(b"GET /open/%2e%2e/admin ", rig.upstream()[1].take())

    def test_deny_list(self) -> None:
        """Who is on a deny list gets nothing, the notary's own paths included."""
        listed = DenyList("stolen", (ExactID(CALLER.spiffe_id),))
        rig = Rig(policies=Policies.of(policy(Action.ALLOW, Rule("all")), denied=[listed]))
        client, wire = rig.client()
        client.dataReceived(get(b"/.well-known/svc-notary") + get(b"/"))
        self.assertEqual(2, wire.take().count(b"HTTP/1.1 403 "))
        self.assertEqual({"stolen"}, {each.policy for each in rig.reporter.decisions if each is not None})

    def test_level_of_a_rule(self) -> None:
        """A rule with a minimum makes a record of what its client did not ask to record."""
        rig = Rig(
            policies=Policies.of(policy(Action.ALLOW, path_rule("pay", "/pay", minimum="signRequest"), Rule("all")))
        )
        client, wire = rig.client()
        for path, expected in ((b"/pay", Level.SIGN_REQUEST), (b"/", Level.NONE)):
            client.dataReceived(get(path))
            rig.respond(OK)
            self.assertEqual(expected, rig.reporter.summaries[-1].level)
            self.assertEqual(expected is Level.SIGN_REQUEST, b"Svc-Receipt-Location" in wire.take())


class ChangeTests(SynchronousTestCase):
    """Open connections when the policies change."""

    def setUp(self) -> None:
        """Make a listener."""
        self.rig = Rig(policies=allow_paths("/chat", "/a"))

    def change(self, policies: Policies) -> None:
        """Put policies into force."""
        self.rig.context.policies = policies
        self.rig.change()

    def joined(self) -> Wire:
        """A client with an upgraded connection."""
        client, wire = self.rig.client()
        client.dataReceived(UPGRADE)
        self.rig.respond(SWITCHED)
        return wire

    def test_upgraded_connection(self) -> None:
        """It lasts while its request would be permitted, and is cut when it would be refused."""
        wire = self.joined()
        self.change(allow_paths("/chat"))
        self.assertFalse(wire.aborted)
        self.change(allow_paths("/other"))
        self.assertTrue(wire.aborted)
        self.assertEqual([("policy_deny", str(CALLER.spiffe_id))], self.rig.reporter.denials)

    def test_refused_client(self) -> None:
        """Whom no rule admits any more loses every connection: joined, under way and idle."""
        joined = self.joined()
        busy, busy_wire = self.rig.client()
        busy.dataReceived(get(b"/a"))
        _idle, idle_wire = self.rig.client()
        self.change(admit_nobody())
        self.assertTrue(joined.aborted and busy_wire.aborted and idle_wire.disconnecting)

    def test_idle_connection(self) -> None:
        """It stays where rules look at requests, and the next request is decided by the new rules."""
        client, wire = self.rig.client()
        self.change(allow_paths("/b"))
        client.dataReceived(get(b"/a"))
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 403 "))
        self.change(admit_domain())
        client.dataReceived(get(b"/a"))
        self.assertEqual(1, len(self.rig.endpoint.connections))


def _parts(decision: Any) -> tuple[str, str, str]:
    return decision.policy, decision.rule, decision.id
