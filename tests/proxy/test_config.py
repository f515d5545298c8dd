"""The configuration of the proxy: every rule is tested with the key, the value and the text that an operator reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.receipt import Redaction
from svc.notary.record_bound import PublishBound, RecordBound, largest_limit, largest_publish
from svc.proxy.config import ProxySettings
from svc.settings import ConfigInvalid, HostPort, format_size, parse
from svc.wire.http1 import RequestHead, RequestParser

INBOUND = {
    "name": "web",
    "protocol": "http",
    "direction": "inbound",
    "listen": '"0.0.0.0:8443"',
    "upstream": '"127.0.0.1:8080"',
}
OUTBOUND = {
    **INBOUND,
    "direction": "outbound",
    "listen": '"127.0.0.1:18443"',
    "upstream": '"pay.bank:8443"',
    "peer": '"spiffe://bank.example/pay"',
}
DURATION = "a duration with its unit, such as 250ms, 10s, 5m, 1h or 90d, up to 36500d"
SIZE = "a size with its unit, such as 512B, 4KiB, 16MiB or 1GiB, below 2^63 octets"
HOST_PORT = "an address host:port with a port up to 65535, IPv6 in brackets"
UPSTREAM = "an address host:port, or unix:/// and the absolute path of a socket"
SOCKET = "unix:/// and the absolute path of a socket"
MATCHER = "a SPIFFE ID, or spiffe://domain/path/* or spiffe://domain/*"


def listener(base: dict[str, str] | None = None, /, **changes: str | None) -> str:
    """Return one listener as a flow mapping; None leaves a key out."""
    keys = {**(base or INBOUND), **changes}
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items() if value is not None) + "}"


def whole(*listeners: str, **top: str) -> str:
    """Return a configuration file."""
    lines = ["trustDomain: prod.example", *(f"{key}: {value}" for key, value in top.items()), "listeners:"]
    return "\n".join([*lines, *(f"  - {each}" for each in listeners or (listener(),))])


def read(text: str) -> ProxySettings:
    """Parse a valid file."""
    return parse(text, ProxySettings)


class RuleTestCase(SynchronousTestCase):
    """Base class of the rule tests."""

    def refused(self, text: str, *expected: tuple[str, str | None, str]) -> None:
        """Assert that exactly these problems are reported."""
        error = self.assertRaises(ConfigInvalid, parse, text, ProxySettings)
        self.assertEqual([(each.key, each.value, each.expected) for each in error.problems], list(expected))


class FileTests(RuleTestCase):
    """The file as a whole."""

    def test_least(self) -> None:
        """A trust domain and one listener are enough; everything else has defaults."""
        settings = read(whole())
        self.assertEqual(settings.trustDomain, "prod.example")
        self.assertEqual(settings.metricsAddr, HostPort("", 9092))
        self.assertEqual(settings.adminAddr, HostPort("127.0.0.1", 9902))
        self.assertEqual(settings.spiffeSocketPath, "unix:///spiffe-workload-api/agent.sock")
        self.assertEqual(settings.notary.pqIssuer, "unix:///run/svc/pq.sock")
        self.assertEqual((settings.notary.profile, settings.notary.retention), ("hybrid", 90 * 86400.0))
        self.assertEqual((settings.policy.default, settings.accessLog), ("deny", "off"))
        self.assertEqual((settings.startTimeout, settings.drainTimeout), (60.0, 30.0))
        (web,) = settings.listeners
        self.assertEqual((web.notarization, web.maxNotarization), ("none", "signRequest"))
        self.assertEqual((web.limits.head, web.limits.body, web.timeouts.idle), (32 * 1024, None, 60.0))

    def test_empty_file(self) -> None:
        """Both keys without a default are reported at once."""
        self.refused("", ("trustDomain", None, "a value"), ("listeners", None, "a value"))

    def test_unknown_keys(self) -> None:
        """An unknown or misspelled key is an error at every level."""
        none = "no such key"
        self.refused(whole(license="x"), ("license", "'x'", none))
        self.refused(
            whole(policy="{file: [/etc/svc/policy.yaml]}"), ("policy.file", "a list", f"{none}, perhaps files")
        )
        self.refused(
            whole(listener(requires="[workload]")), ("listeners[0].requires", "a list", f"{none}, perhaps require")
        )
        self.refused(whole(listener(acks="middleware")), ("listeners[0].acks", "'middleware'", f"{none}, perhaps ack"))
        self.refused(
            whole(listener(limits="{heads: 4KiB}")), ("listeners[0].limits.heads", "'4KiB'", f"{none}, perhaps head")
        )

    def test_all_defects_at_once(self) -> None:
        """Every defect of every section is reported, not only the first."""
        text = whole(listener(listen='"8443"'), listener(name='"-"'), drainTimeout="10", accessLog="yes")
        error = self.assertRaises(ConfigInvalid, parse, text, ProxySettings)
        keys = {each.key for each in error.problems}
        self.assertEqual(keys, {"drainTimeout", "accessLog", "listeners[0].listen", "listeners[1].name"})

    def test_no_listener(self) -> None:
        """A configuration without a listener is invalid."""
        self.refused("trustDomain: a.example\nlisteners: []", ("listeners", "a list", "at least one listener"))

    def test_tcp(self) -> None:
        """A TCP listener has no keys about requests, and an HTTP listener none about octets alone."""
        (db,) = parse(whole(listener(protocol="tcp", alpn="[h2]", timeouts="{lifetime: 1h}")), ProxySettings).listeners
        self.assertEqual((db.alpn, db.timeouts.lifetime, db.notarizes), (("h2",), 3600.0, False))
        requests = "a tcp listener relays octets and knows no requests"
        for key, keys in (
            ("notarization", {"notarization": "workload"}),
            ("forwarded", {"forwarded": "rfc7239"}),
            ("limits.head", {"limits": "{head: 8KiB}"}),
            ("timeouts.stream", {"timeouts": "{stream: 1s}"}),
        ):
            self.refused(
                whole(listener(protocol="tcp", **keys)), ("listeners[0]", "a mapping", f"no {key} here: {requests}")
            )
        for keys, expected in (
            ({"alpn": "[h2]"}, "no alpn here: it belongs to tcp listeners, a listener for HTTP has http/1.1"),
            ({"timeouts": "{lifetime: 1h}"}, "no timeouts.lifetime here: it belongs to tcp and mqtt listeners"),
        ):
            self.refused(whole(listener(**keys)), ("listeners[0]", "a mapping", expected))

    def test_mqtt(self) -> None:
        """An MQTT listener has no keys about requests and no ALPN of its own, and others have none about MQTT."""
        keys = {"clientIDs": '["{name}-*"]', "limits": "{packet: 64KiB, clientID: 23, subscriptions: 5}"}
        (iot,) = parse(whole(listener(protocol="mqtt", **keys)), ProxySettings).listeners
        self.assertEqual((iot.clientIDs, iot.limits.packet, iot.notarizes), (("{name}-*",), 65536, True))
        for key, value in (("forwarded", "rfc7239"), ("host", "a")):
            expected = f"no {key} here: an mqtt listener relays messages and knows no requests"
            self.refused(whole(listener(protocol="mqtt", **{key: value})), ("listeners[0]", "a mapping", expected))
        expected = "no alpn here: it belongs to tcp listeners, a listener for MQTT has mqtt"
        self.refused(whole(listener(protocol="mqtt", alpn="[mqtt]")), ("listeners[0]", "a mapping", expected))
        for protocol in ("http", "tcp"):
            for key, more in (("clientIDs", {"clientIDs": "[a]"}), ("limits.packet", {"limits": "{packet: 64KiB}"})):
                expected = f"no {key} here: it belongs to mqtt listeners"
                self.refused(whole(listener(protocol=protocol, **more)), ("listeners[0]", "a mapping", expected))
        self.refused(
            whole(listener(OUTBOUND, protocol="mqtt", clientIDs="[a]")),
            (
                "listeners[0]",
                "a mapping",
                "no clientIDs here: they belong to inbound listeners, whose clients have an identity",
            ),
        )

    def test_records_of_messages(self) -> None:
        """Inbound MQTT listeners have levels and the octets of a recorded message; what could not fit is refused."""
        keys = {"protocol": "mqtt", "notarization": "logRequest", "limits": "{head: 60KiB, clientID: 1024}"}
        settings = parse(whole(listener(**keys)), ProxySettings)
        (iot,) = settings.listeners
        self.assertEqual((iot.notarization, iot.notarizes, settings.notarizes), ("logRequest", True, True))
        self.assertEqual(iot.publish_bound(Redaction()), PublishBound(60 * 1024, 100, 1024))
        for limits, most in (("head: 128KiB", 256), ("head: 8KiB, clientID: 65535", 65535)):
            keys = {"limits": f"{{{limits}}}"}
            wrong = whole(listener(protocol="mqtt", **keys))
            (problem,) = self.assertRaises(ConfigInvalid, parse, wrong, ProxySettings).problems
            self.assertEqual("listeners[0].limits.head", problem.key)
            largest = largest_publish(PublishBound(2**20, 100, most))
            self.assertIn(f"at most {format_size(largest)} beside clientID {most}", problem.expected)
            parse(whole(listener(protocol="mqtt", limits=f"{{head: {largest}B, clientID: {most}}}")), ProxySettings)
            parse(whole(listener(protocol="mqtt", maxNotarization="workload", **keys)), ProxySettings)
        # Whatever is redacted, some head is accepted.
        self.assertTrue(PublishBound(1024, 100, 65535, Redaction.of(("x",), query=True)).fits)
        for keys, expected in (
            ({"notarization": "workload"}, "no notarization here: the peer of an outbound listener notarizes"),
            ({"limits": "{head: 8KiB}"}, "no limits.head here: the peer of an outbound listener notarizes"),
        ):
            self.refused(whole(listener(OUTBOUND, protocol="mqtt", **keys)), ("listeners[0]", "a mapping", expected))

    def test_artifacts(self) -> None:
        """Artifacts belong to inbound MQTT listeners, and need a notary with its issuer."""
        settings = parse(whole(listener(protocol="mqtt", artifacts="{}")), ProxySettings)
        assert settings.listeners[0].artifacts is not None
        self.assertEqual(("$.svc", True), (settings.listeners[0].artifacts.prefix, settings.notarizes))
        without = listener(protocol="mqtt", maxNotarization="workload")
        self.assertFalse(parse(whole(without), ProxySettings).notarizes)
        for wrong, expected in (
            (listener(artifacts="{}"), "no artifacts here: it belongs to mqtt listeners"),
            (
                listener(OUTBOUND, protocol="mqtt", artifacts="{}"),
                "no artifacts here: they belong to inbound listeners, whose upstream is the own broker",
            ),
        ):
            self.refused(whole(wrong), ("listeners[0]", "a mapping", expected))

    def test_buffer(self) -> None:
        """The buffer belongs to MQTT listeners that acknowledge messages themselves, and its bounds fit each other."""
        stored = listener(protocol="mqtt", ack="middleware", ackUpstream='["alarm/#"]')
        settings = read(whole(stored, mqttBuffer="{totalBytes: 2MiB, sessionBytes: 1MiB, whenFull: newest}"))
        self.assertEqual(("middleware", ("alarm/#",)), (settings.listeners[0].ack, settings.listeners[0].ackUpstream))
        limits = settings.mqttBuffer.limits
        self.assertEqual((2**21, 2**20, settings.buffers), (limits.octets, limits.session_octets, True))
        self.assertFalse(read(whole(listener(protocol="mqtt"))).buffers)
        # Its messages are recorded like those of other listeners.
        for level, limit, notarizes in (
            ("signRequest", "signRequest", True),
            ("none", "logRequest", True),
            ("none", "workload", False),
        ):
            keys = {"notarization": level, "maxNotarization": limit, "limits": "{head: 8KiB}"}
            recorded = read(whole(listener(protocol="mqtt", ack="middleware", **keys)))
            self.assertEqual((notarizes, True), (recorded.listeners[0].notarizes, recorded.buffers))
        (outbound,) = read(whole(listener(OUTBOUND, protocol="mqtt", ack="middleware"))).listeners
        self.assertEqual("middleware", outbound.ack)
        for wrong, expected in (
            (listener(ack="middleware"), "no ack here: it belongs to mqtt listeners"),
            (listener(protocol="tcp", ackUpstream="[a]"), "no ackUpstream here: it belongs to mqtt listeners"),
            (
                listener(protocol="mqtt", ackUpstream="[a]"),
                "ack: middleware beside ackUpstream: without it the broker acknowledges everything",
            ),
        ):
            self.refused(whole(wrong), ("listeners[0]", "a mapping", expected))
        for wrong in ('"a/#/b"', '"$share/g/a"', '""'):
            text = whole(listener(protocol="mqtt", ack="middleware", ackUpstream=f"[{wrong}]"))
            error = self.assertRaises(ConfigInvalid, parse, text, ProxySettings)
            self.assertEqual(["listeners[0].ackUpstream[0]"], [each.key for each in error.problems])
        self.refused(
            whole(mqttBuffer="{}"),
            (
                "configuration",
                "a mapping",
                "a listener with ack: middleware beside mqttBuffer, which nothing else uses",
            ),
        )
        self.refused(
            whole(stored, mqttBuffer="{totalBytes: 1MiB, sessionBytes: 2MiB}"),
            ("mqttBuffer", "a mapping", "sessionBytes of at most totalBytes"),
        )
        self.refused(
            whole(stored, mqttBuffer="{sessionBytes: 512KiB}"),
            (
                "configuration",
                "a mapping",
                "mqttBuffer.sessionBytes of at least 1MiB, the limits.packet of web",
            ),
        )
        self.refused(
            whole(
                listener(protocol="mqtt", ack="middleware"),
                listener(name="other", listen='"0.0.0.0:8444"'),
                mqttBuffer="{path: /var/lib/svc/notary.db}",
                notary="{pqIssuer: unix:///run/svc/pq.sock}",
            ),
            (
                "configuration",
                "a mapping",
                "mqttBuffer.path and notary.path that differ; both are /var/lib/svc/notary.db",
            ),
        )

    def test_client_ids(self) -> None:
        """A pattern names known placeholders; keys of capabilities that do not exist are refused."""
        for pattern in ("{}", "{compartment}-*", "{name", "a}", "{namespace}{"):
            error = self.assertRaises(
                ConfigInvalid, parse, whole(listener(protocol="mqtt", clientIDs=f'["{pattern}"]')), ProxySettings
            )
            self.assertIn("listeners[0].clientIDs[0]", str(error.problems[0]))
        for key in ("ack", "buffer"):
            self.assertRaises(ConfigInvalid, parse, whole(listener(protocol="mqtt", **{key: "x"})), ProxySettings)

    def test_one_defect_is_reported_once(self) -> None:
        """A defect in the only listener is not reported a second time as a missing listener."""
        expected = "'http', 'tcp' or 'mqtt'"
        self.refused(whole(listener(protocol="amqp")), ("listeners[0].protocol", "'amqp'", expected))

    def test_trust_domain(self) -> None:
        """``trustDomain`` follows the exact grammar of trust domain names."""
        expected = "the name of a trust domain, such as prod.example.org"
        for name in ("PROD.example", "spiffe://prod.example", "a b", '""'):
            text = whole().replace("prod.example", name, 1)
            self.refused(text, ("trustDomain", repr(name.strip('"')), expected))

    def test_socket(self) -> None:
        """The Workload API address is a Unix socket with an absolute path."""
        for value in ("/run/agent.sock", "unix:run/agent.sock", "unix:///", "tcp://127.0.0.1:1"):
            self.refused(whole(spiffeSocketPath=value), ("spiffeSocketPath", repr(value), SOCKET))

    def test_disabled_addresses(self) -> None:
        """The number 0, the text ``0`` and the empty text disable an address; nothing else does."""
        for value in ('"0"', '""', "0"):
            settings = read(whole(metricsAddr=value, adminAddr=value))
            self.assertEqual((settings.metricsAddr, settings.adminAddr), (None, None))
        for value, shown in (("false", "false"), ("0.0", "0.0"), ("null", "null"), ("off", "'off'"), ("9092", "9092")):
            self.refused(whole(adminAddr=value), ("adminAddr", shown, HOST_PORT))

    def test_units(self) -> None:
        """A time or a size without its unit, or with a wrong unit, is refused."""
        for value, shown in (("10", "10"), ("10.5", "10.5"), ('"10"', "'10'"), ("10 s", "'10 s'"), ("1w", "'1w'")):
            self.refused(whole(drainTimeout=value), ("drainTimeout", shown, DURATION))
        for value, shown in (("4096", "4096"), ("4KB", "'4KB'"), ("4kib", "'4kib'")):
            self.refused(whole(listener(limits=f"{{body: {value}}}")), ("listeners[0].limits.body", shown, SIZE))
        settings = read(whole(listener(limits="{body: 16MiB}", timeouts="{idle: 250ms}"), drainTimeout="5m"))
        self.assertEqual(settings.drainTimeout, 300.0)
        self.assertEqual(settings.listeners[0].limits.body, 16 * 2**20)
        self.assertEqual(settings.listeners[0].timeouts.idle, 0.25)

    def test_zero_times(self) -> None:
        """A timeout of zero is refused, since it would end everything at once; a drain time of zero is allowed."""
        for key in ("handshake", "header", "idle", "idleUpstream", "connect", "response", "stream", "exchange"):
            text = whole(listener(timeouts=f"{{{key}: 0s}}"))
            self.refused(text, (f"listeners[0].timeouts.{key}", "'0s'", "a duration above 0s"))
        self.refused(whole(startTimeout="0ms"), ("startTimeout", "'0ms'", "a duration above 0s, or never"))
        self.assertIn("up to 36500d; or never", str(self.assertRaises(ConfigInvalid, read, whole(startTimeout="ever"))))
        self.assertEqual((None, 0.001), tuple(read(whole(startTimeout=each)).startTimeout for each in ("never", "1ms")))
        self.assertEqual(read(whole(drainTimeout="0s")).drainTimeout, 0.0)

    def test_fixed_values(self) -> None:
        """A key with fixed values lists them in its error; text is never converted to a boolean."""
        self.refused(whole(accessLog="true"), ("accessLog", "true", "'off', 'on' or 'path'"))
        self.refused(whole(policy="{default: Allow}"), ("policy.default", "'Allow'", "'allow' or 'deny'"))


class PolicyTests(RuleTestCase):
    """The section ``policy``."""

    def test_allow(self) -> None:
        """A list of matchers of any trust domain, empty by default, up to the limit."""
        self.assertEqual(read(whole()).policy.allow, ())
        listed = ("spiffe://bank.example/*", "spiffe://prod.example/ns/pay/*", "spiffe://other.example/a")
        self.assertEqual(read(whole(policy=f"{{allow: [{', '.join(listed)}]}}")).policy.allow, listed)
        expected = "a SPIFFE ID, or spiffe://domain/path/* or spiffe://domain/*"
        manager = "manager.svc-system.svc:9446"
        needed = "policy.clusterFiles beside controlPlane: they are in force until the manager answers"
        problem = self.assertRaises(ConfigInvalid, read, whole(controlPlane=f'"{manager}"')).problems[0]
        self.assertEqual(needed, problem.expected)
        settings = read(whole(controlPlane=f'"{manager}"', policy="{clusterFiles: [/etc/svc/cluster.yaml]}"))
        self.assertEqual(manager, str(settings.controlPlane))
        text = whole(policy="{allow: [spiffe://bank.example]}")
        self.refused(text, ("policy.allow[0]", "'spiffe://bank.example'", expected))
        many = [f"spiffe://bank.example/{number}" for number in range(1025)]
        self.assertEqual(len(read(whole(policy=f"{{allow: [{', '.join(many[1:])}]}}")).policy.allow), 1024)
        problem = self.assertRaises(ConfigInvalid, read, whole(policy=f"{{allow: [{', '.join(many)}]}}"))
        self.assertEqual([each.key for each in problem.problems], ["policy.allow"])


class NotaryTests(RuleTestCase):
    """The section ``notary``."""

    def test_issuer_needed(self) -> None:
        """Every profile but classical needs an issuer; the error names both ways to fix it."""
        for profile in ("hybrid", "pq", "cnsa2"):
            expected = (
                f"pqIssuer, which profile {profile} needs (unix:///path of svc-authority, or host:port),"
                " or profile: classical"
            )
            self.refused(whole(notary=f"{{profile: {profile}}}"), ("notary", "a mapping", expected))
        self.assertEqual(read(whole(notary="{profile: classical}")).notary.pqIssuer, None)

    def test_one_database(self) -> None:
        """The database is a file or a server, not both; the default is a file."""
        url = "postgresql:///notary?host=/run/postgresql"
        notary = read(whole(notary=f'{{profile: classical, database: "{url}"}}')).notary
        self.assertEqual(notary.database, url)
        self.assertIsNone(read(whole(notary="{profile: classical}")).notary.database)
        self.refused(
            whole(notary=f'{{profile: classical, path: /n.db, database: "{url}"}}'),
            ("notary", "a mapping", "either path or database, not both"),
        )
        self.refused(
            whole(notary=f'{{profile: classical, maxBytes: 1GiB, database: "{url}"}}'),
            ("notary", "a mapping", "maxBytes for a database in a file alone"),
        )

    def test_database_without_a_secret(self) -> None:
        """A password is refused with the alternatives and never repeated, even below an unknown key."""
        for key, text in (
            ("database", "postgresql://svc:hunter2@db/n?sslmode=verify-full"),
            ("database", "postgresql://db/n?sslmode=verify-full&password=hunter2"),
            ("databse", "postgresql://svc:hunter2@db/n?sslmode=verify-full"),
        ):
            error = self.assertRaises(
                ConfigInvalid, parse, whole(notary=f'{{profile: classical, {key}: "{text}"}}'), ProxySettings
            )
            [problem] = error.problems
            self.assertEqual((problem.key, problem.value), (f"notary.{key}", "'postgresql://…'"))
            self.assertNotIn("hunter2", f"{error} {problem}")
            if key == "database":
                self.assertIn("a client certificate", problem.expected)

    def test_secrets_in_other_spellings(self) -> None:
        """Other text that may contain a secret is not repeated: a query, an escaped name, and the key=value form."""
        for text, shown in (
            ("postgresql:///n?host=/run/postgresql&scram_client_key=hunter2", "'postgresql://…'"),
            ("postgresql:///n?host=/run/postgresql&%70assword=hunter2", "'postgresql://…'"),
            ("host=/run/postgresql password = hunter2 dbname=n", "'…'"),
            ("host=/run/postgresql scram_client_key=hunter2", "'…'"),
        ):
            error = self.assertRaises(
                ConfigInvalid, parse, whole(notary=f'{{profile: classical, database: "{text}"}}'), ProxySettings
            )
            [problem] = error.problems
            self.assertEqual((problem.key, problem.value), ("notary.database", shown))
            self.assertNotIn("hunter2", f"{error} {problem}")

    def test_database_on_another_machine(self) -> None:
        """A server on another machine without TLS verification is refused."""
        [problem] = self.assertRaises(
            ConfigInvalid, parse, whole(notary='{profile: classical, database: "postgresql://db/n"}'), ProxySettings
        ).problems
        self.assertEqual((problem.key, problem.value), ("notary.database", "'postgresql://db/n'"))
        self.assertIn("sslmode=verify-full", problem.expected)

    def test_issuer_identity(self) -> None:
        """An issuer at host:port needs ``pqIssuerID``; an issuer at a Unix socket does not."""
        expected = "pqIssuerID, the SPIFFE ID of an issuer that is reached by host:port"
        self.refused(whole(notary='{pqIssuer: "pq.example:9443"}'), ("notary", "a mapping", expected))
        given = read(whole(notary='{pqIssuer: "pq.example:9443", pqIssuerID: "spiffe://prod.example/pq"}')).notary
        self.assertEqual((given.pqIssuer, given.pqIssuerID), ("pq.example:9443", "spiffe://prod.example/pq"))
        self.assertEqual(read(whole(notary='{pqIssuer: "unix:///run/pq.sock"}')).notary.pqIssuerID, None)

    def test_issuer_address(self) -> None:
        """The address of an issuer is a host and a port, or an absolute socket path."""
        for value, expected in (
            (":9443", UPSTREAM),
            ("pq.example:0", UPSTREAM),
            ("pq.example", HOST_PORT),
            ("unix:/run/pq.sock", SOCKET),
        ):
            text = whole(notary=f'{{pqIssuer: "{value}", pqIssuerID: "spiffe://prod.example/pq"}}')
            self.refused(text, ("notary.pqIssuer", repr(value), expected))

    def test_identities(self) -> None:
        """Issuer and readers are SPIFFE IDs or patterns of them."""
        text = whole(notary='{pqIssuer: "a:1", pqIssuerID: "https://prod.example/pq"}')
        self.refused(text, ("notary.pqIssuerID", "'https://prod.example/pq'", MATCHER))
        text = whole(notary='{profile: classical, readers: ["spiffe://prod.example/*", "spiffe://*"]}')
        self.refused(text, ("notary.readers[1]", "'spiffe://*'", MATCHER))

    def test_bounds(self) -> None:
        """Rates and the queue limit have a lower and an upper bound."""
        for key, least, most in (
            ("receiptsPerSecond", 1, 100_000),
            ("receiptsBurst", 1, 1_000_000),
            ("queue", 1, 65536),
        ):
            for value in (least, most):
                settings = read(whole(notary=f"{{profile: classical, {key}: {value}}}"))
                self.assertEqual(getattr(settings.notary, key), value)
            for value, expected in (
                (least - 1, f"greater than or equal to {least}"),
                (most + 1, f"less than or equal to {most}"),
            ):
                text = whole(notary=f"{{profile: classical, {key}: {value}}}")
                self.refused(text, (f"notary.{key}", str(value), expected))

    def test_bounds_of_octets(self) -> None:
        """Octet allowances have a lower and an upper bound; every burst can hold the largest record."""
        for key, least, most in (
            ("recordOctetsPerSecond", 1024, 2**30),
            ("recordOctetsBurst", 2**20, 2**40),
            ("maxBytes", 2**24, 2**44),
        ):
            for value in (least, most):
                settings = read(whole(notary=f"{{profile: classical, {key}: {value}B}}"))
                self.assertEqual(getattr(settings.notary, key), value)
            for value, expected in (
                (least - 1, f"greater than or equal to {least}"),
                (most + 1, f"less than or equal to {most}"),
            ):
                text = whole(notary=f"{{profile: classical, {key}: {value}B}}")
                self.refused(text, (f"notary.{key}", f"'{value}B'", expected))
        self.assertLess(RecordBound(largest_limit("head", RecordBound(2**20, 8)), 8).stored, 2**20)
        self.assertLess(RecordBound(1024, largest_limit("fields", RecordBound(1024, 1000))).stored, 2**20)

    def test_text_is_no_number(self) -> None:
        """A quoted number is text and is refused."""
        self.refused(whole(notary='{profile: classical, queue: "8"}'), ("notary.queue", "'8'", "a whole number"))


class WorkloadTests(RuleTestCase):
    """The section ``workload``."""

    def test_one_source(self) -> None:
        """Facts come from the folder or from the file, not from both; the error names the conflicting values."""
        text = whole(workload="{podInfo: /etc/podinfo, namespace: pay, labels: {a: b}, allowLabels: [a]}")
        expected = "either podInfo or explicit values, not both (labels, namespace)"
        self.refused(text, ("workload", "a mapping", expected))

    def test_lists_with_both_sources(self) -> None:
        """The lists of published labels and annotations are allowed with either source."""
        given = read(whole(workload="{podInfo: /etc/podinfo, allowLabels: [a], allowAnnotations: [b]}")).workload
        self.assertEqual((given.podInfo, given.allowLabels, given.allowAnnotations), ("/etc/podinfo", ("a",), ("b",)))

    def test_containers(self) -> None:
        """A container has a name and an image."""
        self.refused(whole(workload="{containers: [{name: a}]}"), ("workload.containers[0].image", None, "a value"))


class ListenerTests(RuleTestCase):
    """One listener."""

    def wrong(self, text: str, expected: str) -> None:
        """Assert that a rule between keys of a listener is reported at the listener."""
        self.refused(whole(text), ("listeners[0]", "a mapping", expected))

    def test_name(self) -> None:
        """A name is a label for logs and metrics, of at most 63 characters."""
        expected = "a name of at most 63 letters, digits, dots, hyphens and underscores, no mark in front"
        for name in ("", ".web", "a b", "wéb", "a" * 64):
            self.refused(whole(listener(name=f'"{name}"')), ("listeners[0].name", repr(name), expected))
        for name in ("a", "Web-1.b_c", "a" * 63):
            self.assertEqual(read(whole(listener(name=f'"{name}"'))).listeners[0].name, name)

    def test_distinct_names(self) -> None:
        """Two listeners with the same name are refused, since logs could not distinguish them."""
        text = whole(listener(), listener(listen='"0.0.0.0:8444"'))
        self.refused(text, ("configuration", "a mapping", "listeners with distinct names; web appears twice"))

    def test_distinct_addresses(self) -> None:
        """Two listeners with the same address are refused; port 0 is a different port each time."""
        text = whole(listener(), listener(name="other"))
        self.refused(
            text, ("configuration", "a mapping", "listeners with distinct addresses; 0.0.0.0:8443 appears twice")
        )
        two = read(whole(listener(listen='"127.0.0.1:0"'), listener(name="other", listen='"127.0.0.1:0"')))
        self.assertEqual(len(two.listeners), 2)

    def test_addresses(self) -> None:
        """Listening and upstream addresses are checked."""
        for value in ("8443", "127.0.0.1:65536", "a:b", "[::1"):
            self.refused(whole(listener(listen=f'"{value}"')), ("listeners[0].listen", repr(value), HOST_PORT))
        for value, expected in ((":80", UPSTREAM), ("web:0", UPSTREAM), ("web", HOST_PORT), ("unix:web", SOCKET)):
            self.refused(whole(listener(upstream=f'"{value}"')), ("listeners[0].upstream", repr(value), expected))
        (unix,) = read(whole(listener(upstream='"unix:///run/web.sock"'))).listeners
        self.assertEqual(unix.upstream, "unix:///run/web.sock")
        (six,) = read(whole(listener(upstream='"[::1]:80"', listen='":8443"'))).listeners
        self.assertEqual((six.upstream, six.listen), (HostPort("::1", 80), HostPort("", 8443)))

    def test_outbound(self) -> None:
        """A valid outbound listener."""
        (pay,) = read(whole(listener(OUTBOUND))).listeners
        self.assertEqual((pay.peer, pay.upstream), ("spiffe://bank.example/pay", HostPort("pay.bank", 8443)))

    def test_outbound_needs_a_peer(self) -> None:
        """An outbound listener needs the SPIFFE ID of its peer."""
        self.wrong(
            listener(OUTBOUND, peer=None), "peer, the SPIFFE ID that the upstream of an outbound listener must have"
        )

    def test_peer_is_an_identity(self) -> None:
        """A peer is a SPIFFE ID or a pattern."""
        text = whole(listener(OUTBOUND, peer='"bank.example"'))
        self.refused(text, ("listeners[0].peer", "'bank.example'", MATCHER))

    def test_outbound_reaches_a_host(self) -> None:
        """An outbound upstream is a host and port: there is no mutual TLS over a Unix socket."""
        text = listener(OUTBOUND, upstream='"unix:///run/pay.sock"')
        self.wrong(text, "upstream host:port, since an outbound listener reaches another host")

    def test_outbound_is_loopback(self) -> None:
        """Outbound listeners accept plain connections only from this machine."""
        expected = "a loopback address to listen on, since an outbound listener takes plain connections"
        for host in ("0.0.0.0", "", "10.0.0.1", "[::]", "web.example", "128.0.0.1"):
            self.wrong(listener(OUTBOUND, listen=f'"{host}:1"'), expected)
        for host in ("127.0.0.1", "127.9.9.9", "[::1]", "localhost"):
            self.assertEqual(read(whole(listener(OUTBOUND, listen=f'"{host}:1"'))).listeners[0].listen.port, 1)

    def test_outbound_has_no_notary(self) -> None:
        """An outbound listener refuses every notary key, since the peer notarizes."""
        expected = "no notarization here: the peer of an outbound listener notarizes"
        self.wrong(listener(OUTBOUND, notarization="workload"), expected)
        self.wrong(listener(OUTBOUND, notarization="none"), expected)
        self.wrong(listener(OUTBOUND, maxNotarization="none"), expected)

    def test_require(self) -> None:
        """Outbound listeners for HTTP may demand proofs of their peer; a receipt includes the statement."""
        for require, collects, level in (
            ("[]", "false", "none"),
            ("[]", "true", "workload"),
            ("[workload]", "false", "workload"),
            ("[receipt]", "false", "signRequest"),
            ("[workload, receipt]", "true", "signRequest"),
        ):
            settings = read(whole(listener(OUTBOUND, require=require, collectReceipts=collects)))
            (found,) = settings.listeners
            self.assertEqual((found.demanded_of_peer, settings.stores), (level, collects == "true"), require)
        wrong = ("listeners[0].require[0]", "'receipts'", "'workload' or 'receipt'")
        self.refused(whole(listener(OUTBOUND, require="[receipts]")), wrong)
        expected = "no require or collectReceipts here: they belong to outbound listeners, which have a peer"
        self.wrong(listener(require="[workload]"), expected)
        self.wrong(listener(collectReceipts="true"), expected)
        for key, value in (("require", "[workload]"), ("collectReceipts", "true")):
            tcp = listener(OUTBOUND, protocol="tcp", **{key: value})
            self.wrong(tcp, f"no {key} here: a tcp listener relays octets and knows no requests")

    def test_conditions_on_statements(self) -> None:
        """They belong to outbound listeners that verify the statement of their peer."""
        given = "{issuers: [spiffe://bank.example/svc/manager], conditions: [{namespaces: [pay]}]}"
        (found,) = read(whole(listener(OUTBOUND, require="[workload]", peerStatement=given))).listeners
        self.assertEqual(("pay",), found.peerStatement and found.peerStatement.conditions[0].namespaces)
        expected = "require beside peerStatement: without it the statement of the peer is not verified"
        self.wrong(listener(OUTBOUND, peerStatement=given), expected)
        expected = "no peerStatement here: it belongs to outbound listeners, which have a peer"
        self.wrong(listener(peerStatement=given), expected)

    def test_issuer_of_outbound_listeners(self) -> None:
        """Where nothing is signed no post-quantum issuer is needed, whatever profile verifies."""
        notary = "{path: /var/lib/svc/notary.db}"
        settings = read(whole(listener(OUTBOUND, collectReceipts="true"), notary=notary))
        self.assertEqual((settings.notary.profile, settings.notary.pqIssuer), ("hybrid", None))

    def test_outbound_has_no_proxy_protocol(self) -> None:
        """An outbound listener refuses the PROXY protocol, since it listens on loopback without a load balancer."""
        expected = "no proxyProtocol here: an outbound listener takes connections of this machine only"
        self.wrong(listener(OUTBOUND, proxyProtocol="v2"), expected)
        self.assertEqual(read(whole(listener(proxyProtocol="v2"))).listeners[0].proxyProtocol, "v2")

    def test_inbound_has_no_peer(self) -> None:
        """An inbound listener refuses ``peer``: its clients are admitted by the policy."""
        expected = "no peer here: it belongs to outbound listeners, the policy admits inbound peers"
        self.wrong(listener(peer='"spiffe://prod.example/a"'), expected)

    def test_forwarded(self) -> None:
        """``forwarded`` belongs to inbound listeners and is off by default."""
        self.assertEqual(read(whole()).listeners[0].forwarded, "off")
        self.assertEqual(read(whole(listener(forwarded="rfc7239"))).listeners[0].forwarded, "rfc7239")
        self.refused(whole(listener(forwarded="true")), ("listeners[0].forwarded", "true", "'off' or 'rfc7239'"))
        expected = "no forwarded here: it belongs to inbound listeners, which have remote clients"
        self.wrong(listener(OUTBOUND, forwarded="rfc7239"), expected)

    def test_host(self) -> None:
        """``host`` is what a Host field may be: every valid value is accepted by the parser of the peer's proxy."""
        self.assertIsNone(read(whole(listener(OUTBOUND))).listeners[0].host)
        for value in (
            *("pay.bank.example", "pay.bank.example:8443", "pay_1.bank.", "192.0.2.1", "192.0.2.1:80", "a" * 63),
            *("[2001:db8::1]", "[2001:db8::1]:65535", "[::ffff:192.0.2.1]:1"),
        ):
            self.assertEqual(read(whole(listener(OUTBOUND, host=f'"{value}"'))).listeners[0].host, value)
            [head, _end] = RequestParser().feed(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % value.encode())
            self.assertIsInstance(head, RequestHead)

    def test_host_invalid(self) -> None:
        """Anything else of an address is refused: a scheme, a path, IPv6 without brackets, a port without a host."""
        expected = (
            "a host name or an IP address (IPv6 in brackets), with a port or without, such as pay.bank.example or"
            " pay.bank.example:8443; no scheme, no path"
        )
        for value in (
            *("", "https://pay.bank.example", "pay.bank.example/", "pay bank", "a@b", "2001:db8::1", "[2001:db8::g]"),
            *(
                "pay:",
                ":80",
                "pay:0",
                "pay:65536",
                "pay:080",
                "[::1]x",
                "127.1",
                "a..b",
                "a,b",
                "pay\tx",
                "päy",
                "[]:1",
            ),
        ):
            self.refused(whole(listener(OUTBOUND, host=f'"{value}"')), ("listeners[0].host", repr(value), expected))

    def test_inbound_has_no_host(self) -> None:
        """An inbound listener refuses ``host``."""
        expected = "no host here: it belongs to outbound listeners, inbound ones keep the Host of the client"
        self.wrong(listener(host="api.example"), expected)

    def test_maximum_below_demand(self) -> None:
        """The maximum level must be at least the required level, for every pair of levels."""
        levels = ("none", "workload", "logRequest", "signRequest")
        for demanded, level in enumerate(levels):
            for most, maximum in enumerate(levels):
                text = listener(notarization=level, maxNotarization=maximum)
                if most < demanded:
                    self.wrong(text, f"a maxNotarization of at least {level}")
                else:
                    self.assertEqual(read(whole(text)).listeners[0].maxNotarization, maximum)

    def test_records_fit_a_receipt(self) -> None:
        """Messages are recorded up to the limit; one octet more is an error that names the largest value."""
        most = largest_limit("head", RecordBound(2**20, 100))
        expected = (
            f"at most {most}B beside fields 100 and what is redacted, so that the largest receipt fits 256KiB"
            " (or a maxNotarization of workload)"
        )
        for level in ("logRequest", "signRequest"):
            at = listener(maxNotarization=level, limits=f"{{head: {most}B}}")
            self.assertEqual(read(whole(at)).listeners[0].limits.head, most)
            for head in (f"{most + 1}B", "40KiB"):
                beyond = listener(maxNotarization=level, limits=f"{{head: {head}}}")
                self.refused(whole(beyond), ("listeners[0].limits.head", repr(head), expected))
        free = listener(maxNotarization="workload", limits="{head: 1MiB, fields: 1000}")
        self.assertEqual(read(whole(free)).listeners[0].limits.head, 2**20)
        self.assertEqual(read(whole(listener(OUTBOUND, limits="{head: 1MiB}"))).listeners[0].limits.head, 2**20)

    def test_redaction_counts(self) -> None:
        """Digests that are longer than the redacted text enlarge records; the error names the key that was set."""
        notary = "{profile: classical, redactHeaders: [x], redactQuery: true}"
        redaction = Redaction.of(["x"], query=True)
        most = largest_limit("fields", RecordBound(32768, 1000, redaction))
        self.assertLess(most, largest_limit("fields", RecordBound(32768, 1000)))
        at = listener(limits=f"{{fields: {most}}}")
        self.assertEqual(read(whole(at, notary=notary)).listeners[0].limits.fields, most)
        beyond = whole(listener(), listener(name="b", listen='":9"', limits=f"{{fields: {most + 1}}}"), notary=notary)
        (problem,) = self.assertRaises(ConfigInvalid, parse, beyond, ProxySettings).problems
        self.assertEqual((problem.key, problem.value), ("listeners[1].limits.fields", repr(str(most + 1))))
        self.assertIn(f"at most {most} beside head 32KiB", problem.expected)

    def test_limits(self) -> None:
        """Each limit has a lower and an upper bound."""
        for key, least, most, unit in (
            ("connections", 1, 1_000_000, ""),
            ("handshakes", 1, 65536, ""),
            ("head", 1024, 2**20, "B"),
            ("fields", 8, 1000, ""),
            ("idleUpstream", 0, 65536, ""),
        ):
            for value in (least, most):
                text = listener(maxNotarization="none", limits=f"{{{key}: {value}{unit}}}")
                self.assertEqual(getattr(read(whole(text)).listeners[0].limits, key), value)
            for value in {max(least - 1, 0), most + 1} - {least}:
                text = listener(maxNotarization="none", limits=f"{{{key}: {value}{unit}}}")
                error = self.assertRaises(ConfigInvalid, parse, whole(text), ProxySettings)
                self.assertEqual([each.key for each in error.problems], [f"listeners[0].limits.{key}"])

    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
    def test_any_text_as_address(self, text: str) -> None:
        """Any text as an address is kept unchanged, or is an error at its key."""
        quoted = "".join(f"\\U{ord(each):08x}" for each in text)
        try:
            settings = read(whole(listener(listen=f'"{quoted}"')))
        except ConfigInvalid as error:
            self.assertEqual([each.key for each in error.problems], ["listeners[0].listen"])
        else:
            self.assertEqual(str(settings.listeners[0].listen), text)
