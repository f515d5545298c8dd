"""The broker's configuration: valid values, and the messages for invalid ones."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import ClientName, Principal
from svc.broker.config import BrokerSettings
from svc.broker.service import connection_limits, hub_limits, rules_of
from svc.identity import SpiffeID
from svc.settings import ConfigInvalid, parse
from svc.transport.client_certificates import ClientAuthorities

PLAIN = "listeners: [{name: local, listen: '127.0.0.1:1883'}]"
SPIFFE = """
trustDomain: prod.example.org
listeners:
  - name: devices
    listen: "0.0.0.0:8883"
    tls: {spiffe: true}
    acl:
      - {who: "spiffe://prod.example.org/device/*", publish: ["devices/+/state"], subscribe: ["commands/#"]}
"""


class AcceptedTests(SynchronousTestCase):
    """Good files."""

    def test_loopback(self) -> None:
        """A plain loopback listener needs nothing else, and its clients may do everything but write below $SYS."""
        (listener,) = parse(PLAIN, BrokerSettings).listeners
        rules, nobody = rules_of(listener), Principal(None)
        self.assertTrue(rules.may_publish(nobody, "a/b"))
        self.assertTrue(rules.may_publish(nobody, "$own/a"))
        for wanted in ("#", "$SYS/#", "$own/#", "$share/g/$own/+"):
            self.assertTrue(rules.may_subscribe(nobody, wanted))
        for topic in ("$SYS/broker/uptime", "$SYS"):
            self.assertFalse(rules.may_publish(nobody, topic))

    def test_identities(self) -> None:
        """Rules by identity allow exactly what they name to the identities that they name."""
        (listener,) = parse(SPIFFE, BrokerSettings).listeners
        rules = rules_of(listener)
        device = Principal(SpiffeID.parse("spiffe://prod.example.org/device/7"))
        other = Principal(SpiffeID.parse("spiffe://prod.example.org/web"))
        self.assertTrue(rules.may_publish(device, "devices/7/state"))
        self.assertFalse(rules.may_publish(device, "devices/7/secret"))
        self.assertTrue(rules.may_subscribe(device, "commands/7/+"))
        self.assertTrue(rules.may_subscribe(device, "$share/g/commands/#"))
        self.assertFalse(rules.may_subscribe(device, "#"))
        for who in (other, Principal(None)):
            self.assertFalse(rules.may_publish(who, "devices/7/state"))
            self.assertFalse(rules.may_subscribe(who, "commands/#"))

    def test_limits_arrive(self) -> None:
        """Each limit of the file is a limit of what runs."""
        text = (
            PLAIN
            + """
limits: {packet: 2KiB, properties: 3, levels: 4, filters: 5, sessions: 6, sessionExpiry: 7s, queued: 8,
         queuedOctets: 9KiB, received: 10, subscriptions: 11, aliases: 12, retained: 13, retainedOctets: 14KiB,
         connect: 15s, keepAlive: 16s}
"""
        )
        limits = parse(text, BrokerSettings).limits
        connection, held = connection_limits(limits), hub_limits(limits)
        packet = connection.packet
        self.assertEqual((packet.packet, packet.properties, packet.levels, packet.filters), (2048, 3, 4, 5))
        self.assertEqual((connection.connect, connection.keep_alive), (15, 16))
        self.assertEqual((held.sessions, held.session_expiry), (6, 7))
        self.assertEqual((held.retained, held.retained_octets), (13, 14 * 1024))
        session = held.session
        self.assertEqual((session.queued, session.octets, session.received), (8, 9 * 1024, 10))
        self.assertEqual((session.subscriptions, session.aliases), (11, 12))


DEVICES = """
passwordFile: /etc/svc/users
listeners:
  - name: users
    listen: ":8885"
    tls: {certificate: /c, key: /k}
    passwords: true
    acl: [{who: "user:*", publish: ["d/%u/#"], denySubscribe: ["d/+/key"]}]
  - name: local
    listen: "127.0.0.1:1884"
    passwords: true
    acl: [{who: "user:display-*"}]
  - name: gateways
    listen: ":8886"
    tls: {certificate: /c, key: /k, clientAuthorities: [/a, /b], clientName: dns, clientRevocations: /r}
    acl: [{who: "certificate:*.example.org", subscribe: ["d/%c"]}]
"""


class DeviceTests(SynchronousTestCase):
    """Listeners for devices without a SPIFFE identity."""

    def test_accepted(self) -> None:
        """Passwords over TLS or on loopback, certificates of authorities, with rules for their names."""
        users, local, gateways = parse(DEVICES, BrokerSettings).listeners
        self.assertEqual([each.clients for each in (users, local, gateways)], ["user", "user", "certificate"])
        assert users.tls is not None
        assert gateways.tls is not None
        self.assertIsNone(users.tls.authorities)
        self.assertEqual(gateways.tls.authorities, ClientAuthorities(("/a", "/b"), "dns", "/r"))
        someone = Principal(None, name=ClientName("user", "display-1"))
        gateway = Principal(None, name=ClientName("certificate", "a.example.org"), client_id="c")
        self.assertTrue(rules_of(users).may_publish(someone, "d/display-1/x"))
        self.assertFalse(rules_of(users).may_publish(someone, "d/other/x"))
        self.assertTrue(rules_of(local).may_connect(someone))
        self.assertFalse(rules_of(gateways).may_connect(someone))
        self.assertTrue(rules_of(gateways).may_subscribe(gateway, "d/c"))
        self.assertFalse(rules_of(users).may_connect(gateway))

    def test_svid(self) -> None:
        """A broker with tls.svid needs a trust domain, and takes an SVID for any kind of client but its own."""
        svid = f"trustDomain: a.b\n{DEVICES.replace('certificate: /c, key: /k', 'svid: true')}"
        settings = parse(svid, BrokerSettings)
        self.assertTrue(settings.needs_svid)
        self.assertFalse(parse(DEVICES, BrokerSettings).needs_svid)
        error = self.assertRaises(ConfigInvalid, parse, svid.replace("trustDomain: a.b", ""), BrokerSettings)
        self.assertIn("tls.svid", str(error.problems[0]))


class RefusedTests(SynchronousTestCase):
    """Bad files."""

    def refused(self, text: str, key: str, expected: str) -> None:
        """Check that one problem names the key and what was expected."""
        error = self.assertRaises(ConfigInvalid, parse, text, BrokerSettings)
        shown = [str(each) for each in error.problems]
        self.assertTrue(any(each.startswith(key) and expected in each for each in shown), shown)

    def test_open_to_everybody(self) -> None:
        """Plain MQTT needs a loopback address, and TLS needs rules: neither starts without."""
        self.refused(PLAIN.replace("127.0.0.1", "0.0.0.0"), "listeners[0]", "a loopback address, or tls")
        self.refused(PLAIN.replace("127.0.0.1", ""), "listeners[0]", "a loopback address, or tls")
        files = "tls: {certificate: /c.pem, key: /k.pem}"
        self.refused(f"listeners: [{{name: a, listen: ':8883', {files}}}]", "listeners[0]", "acl, the access rules")

    def test_identities_where_there_are_some(self) -> None:
        """Rules name identities where clients have some, and anonymous clients elsewhere."""
        self.refused(
            SPIFFE.replace('"spiffe://prod.example.org/device/*"', "anonymous"), "listeners[0]", "matchers in acl"
        )
        plain = "listeners: [{name: a, listen: 'localhost:1', acl: [{who: 'spiffe://a.b/*', publish: ['#']}]}]"
        self.refused(plain, "listeners[0]", "who: anonymous")

    def test_devices(self) -> None:
        """Kinds of clients are not mixed, passwords do not cross a network in plain, and names are for %u."""
        for old, new, key, words in (
            ('listen: "127.0.0.1:1884"', 'listen: ":1884"', "listeners[1]", "any host could read passwords"),
            ('    acl: [{who: "user:display-*"}]\n', "", "listeners[1]", "acl, the access rules"),
            ('"user:display-*"', "anonymous", "listeners[1]", "who: user:NAME in acl"),
            ('"user:*"', '"certificate:*"', "listeners[0]", "who: user:NAME in acl"),
            ('"certificate:*.example.org"', '"user:x"', "listeners[2]", "who: certificate:NAME in acl"),
            ('"user:display-*"', '"user:"', "listeners[1].acl[0].who", "user:NAME"),
            ('"user:display-*"', '"user:a\\tb"', "listeners[1].acl[0].who", "user:NAME"),
            ("passwordFile: /etc/svc/users", "", "configuration", "passwordFile and a listener with passwords"),
            ("passwords: true", "passwords: false", "listeners[0]", "who: anonymous in acl"),
            ("clientName: dns", "clientName: ip", "listeners[2].tls.clientName", ""),
            ("clientAuthorities: [/a, /b], ", "", "listeners[2].tls", "clientAuthorities with clientName"),
            (
                "key: /k, client",
                "key: /k, svid: true, client",
                "listeners[2].tls",
                "either spiffe: true, or certificate",
            ),
            (
                "certificate: /c, key: /k, client",
                "spiffe: true, client",
                "listeners[2].tls",
                "spiffe: true or clientAuth",
            ),
            ('["d/%u/#"]', '["d/x-%u/#"]', "listeners[0].acl[0].publish[0]", "whole levels"),
            ('["d/%c"]', '["d/%c%c"]', "listeners[2].acl[0].subscribe[0]", "whole levels"),
        ):
            self.assertIn(old, DEVICES)
            self.refused(DEVICES.replace(old, new), key, words)
        gateways = DEVICES[DEVICES.index("  - name: gateways") :].replace("    acl", "    passwords: true\n    acl")
        self.refused(f"passwordFile: /p\nlisteners:\n{gateways}", "listeners[0]", "passwords without tls.spiffe")
        self.refused(f"passwordFile: /p\n{PLAIN}", "configuration", "passwordFile and a listener")
        named = "{name: a, listen: '127.0.0.1:1', acl: [{who: anonymous, denyPublish: ['%u']}]}"
        self.refused(f"listeners: [{named}]", "listeners[0].acl[0]", "has no such name")
        self.refused(SPIFFE.replace("devices/+/state", "%u"), "listeners[0].acl[0]", "user:NAME or certificate:NAME")

    def test_proxy_protocol(self) -> None:
        """The header is allowed before TLS, by identity or by certificate, and not before plain MQTT."""
        for tls, who in (("spiffe: true", "'spiffe://a.b/*'"), ("certificate: /c, key: /k", "anonymous")):
            keys = f"listen: ':1', proxyProtocol: v2, tls: {{{tls}}}, acl: [{{who: {who}}}]"
            (listener,) = parse(f"trustDomain: a.b\nlisteners: [{{name: a, {keys}}}]", BrokerSettings).listeners
            self.assertEqual(listener.proxyProtocol, "v2")
        self.refused(PLAIN.replace("'}]", "', proxyProtocol: v2}]"), "listeners[0]", "tls with proxyProtocol: v2")

    def test_whole_seconds(self) -> None:
        """Durations that MQTT sends in seconds are at least one: 0 would be a session without expiry, or no limit."""
        for key in ("sessionExpiry", "keepAlive"):
            self.refused(f"{PLAIN}\nlimits: {{{key}: 999ms}}", f"limits.{key}", "a duration of at least 1s")
            limits = parse(f"{PLAIN}\nlimits: {{{key}: 1s}}", BrokerSettings).limits
            self.assertEqual(getattr(limits, key), 1)

    def test_listeners_differ(self) -> None:
        """Names and addresses must differ."""
        for second, what in (("a, listen: '127.0.0.1:2'", "names, not a"), ("b, listen: '127.0.0.1:1'", "addresses")):
            text = f"listeners: [{{name: a, listen: '127.0.0.1:1'}}, {{name: {second}}}]"
            self.refused(text, "configuration", f"listeners with different {what}")

    def test_values(self) -> None:
        """Each bad value is named with what was expected."""
        self.refused("listeners: []", "configuration", "at least one listener")
        self.refused(SPIFFE.replace("trustDomain: prod.example.org", ""), "configuration", "trustDomain")
        self.refused(
            SPIFFE.replace("devices/+/state", "devices/+x"), "listeners[0].acl[0].publish[0]", "a topic filter"
        )
        self.refused(SPIFFE.replace("commands/#", "$share/g/x"), "listeners[0].acl[0].subscribe[0]", "a topic filter")
        self.refused(SPIFFE.replace("spiffe: true", "certificate: /c"), "listeners[0].tls", "certificate and key")
        self.refused(SPIFFE.replace("spiffe: true", "spiffe: false"), "listeners[0].tls", "either spiffe: true")
        files = "certificate: /c, key: /k, keyExchange: require"
        self.refused(SPIFFE.replace("spiffe: true", files), "listeners[0].tls", "spiffe: true with keyExchange")
        self.refused(f"{PLAIN[:-1]}, {{name: local, listen: '127.0.0.1:2'}}]", "configuration", "different names")
        self.refused(f"{PLAIN[:-1]}, {{name: b, listen: '127.0.0.1:1883'}}]", "configuration", "different address")
