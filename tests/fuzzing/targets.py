"""
Functions of octets that raise where the code under test breaks its promise, and inputs to begin with.

A parser may refuse any input by its own errors, and by no others; what it accepts must be usable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svc.cli.license.report import unverified_report
from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import receipt_id
from svc.errors import SvcError
from svc.federation.errors import ReferenceRefused
from svc.federation.payload import PackageContent
from svc.federation.reference import ExpectedPeer, FederationReference
from svc.identity import verify_svid
from svc.license.armour import armoured, read_armour
from svc.license.payload import License
from svc.license.states import assess
from svc.license.vendors import pinned_keys
from svc.license.verification import UnverifiedLicense, VerifiedLicense
from svc.notary.receipt_claims import ReceiptClaims
from svc.policy.denylist import DenyList, plain_issuer
from svc.policy.engine import Denied, PolicySet
from svc.policy.paths import HostPattern, PathPattern, PatternMalformed, RequestAmbiguous, plain_host, plain_path
from svc.policy.rules import AuthorizationPolicy, ConnectionFacts, RequestFacts
from svc.policy.shadowing import shadowed_rules
from svc.policyfiles.files import KINDS, PolicyFilesRefused, policy_files
from svc.reports.artifact_reports import stored_report
from svc.reports.summary import described, receipt_summary
from svc.settings import ConfigInvalid, ConfigUnreadable, parse_all
from svc.strictjson import JsonRefused, loads_object
from svc.testing.ca import TestAuthority
from svc.wire.http1 import MessageRefused, RequestHead
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Properties,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    encode,
)
from svc.wire.proxyprotocol import FIXED, ProxyHeader, ProxyHeaderInvalid, ProxyHeaderParser
from tests.federation.material import ENDPOINT, PROD, content
from tests.license.material import LICENSE, text_of
from tests.policy.test_engine import CONNECTIONS, POLICIES, REQUESTS, assert_as_naive, facts
from tests.policyfiles.test_files import DENY_LIST, POLICY
from tests.proxy.mqtt.sessions import Pair
from tests.wire.reading import comparable, cut, read_requests, read_response

_NOW = datetime(2026, 11, 23, tzinfo=UTC)
_AUTHORITY = TestAuthority("x.org", now=_NOW)
_CLIENT = verify_svid(_AUTHORITY.intermediate().svid("/ns/old/sa/a").chain, _AUTHORITY.bundles(), _NOW)
_CONNECTIONS = (facts(), facts(identity=_CLIENT.spiffe_id, listener="db", sni="h.org", alpn="h2"))
_REQUESTS = (
    RequestFacts(),
    *(RequestFacts("GET", path, "h.org", "none") for path in ("/", "*", "/orders/", "/orders/a", "/a/b/c/d")),
    RequestFacts(action="Connect", client_id="web-1"),
    *(RequestFacts(action="Publish", topic=topic) for topic in ("a", "/", "orders/a", "$SYS/a")),
    *(RequestFacts(action="Subscribe", topic=topic) for topic in ("#", "orders/+", "$SYS/#")),
)


@dataclass(frozen=True)
class Target:
    """
    A function of octets and inputs to begin with.

    Attributes:
        longest: the octets of the longest input.
        inputs: how many are tried in every run; some seconds.
    """

    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    longest: int = 2048
    inputs: int = 20_000


def documents(data: bytes) -> tuple[tuple[AuthorizationPolicy, ...], tuple[DenyList, ...]]:
    """The policies and deny lists of a file; none where it is refused, by an error that can be shown."""
    try:
        documents = parse_all(data.decode("utf-8", "replace"), KINDS, "a.yaml")
        read = policy_files([("a.yaml", each) for each in documents], ["a.yaml"], "")
    except (ConfigUnreadable, ConfigInvalid, PolicyFilesRefused) as error:
        _shown(error)
        return (), ()
    return read.policies, read.denied


def _shown(error: SvcError) -> None:
    """An error has one line of text, however the input looks, and says what to do where it has a hint."""
    text = f"{error}; {error.hint}"
    assert text.isprintable(), repr(text)


def policy_file(data: bytes) -> None:
    """A file is refused, or each of its policies decides on every connection and request."""
    policies, _lists = documents(data)
    list(shadowed_rules(policies))
    decides = PolicySet(policies)
    for connection in _CONNECTIONS:
        narrowed = decides.connection(connection)
        for request in _REQUESTS:
            narrowed.dry_run(request)
            narrowed.audited(request)
            try:
                narrowed.authorize(request)
            except Denied as denied:
                _shown(denied)


def deny_list(data: bytes) -> None:
    """A file is refused, or each of its lists decides on a peer, alike by evidence and by identity."""
    _policies, lists = documents(data)
    for each in lists:
        entry, of_identity = each.entry_for(_CLIENT), each.entry_for_identity(_CLIENT.spiffe_id)
        assert of_identity is None or of_identity == entry
        assert all(plain_issuer(issuer) == issuer for issuer, _serial in each.serials)


@given(st.lists(POLICIES, max_size=5), st.lists(st.tuples(CONNECTIONS, REQUESTS), min_size=1, max_size=4))
@settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
def _engine(policies: list[AuthorizationPolicy], asked: list[tuple[ConnectionFacts, RequestFacts]]) -> None:
    assert_as_naive(policies, asked)


def path(data: bytes) -> None:
    """
    A path is ambiguous, or its one reading has nothing that could be read otherwise, and is its own reading; a pattern
    is malformed, or matches what it names.
    """
    try:
        plain = plain_path(data)
    except RequestAmbiguous as error:
        _shown(error)
    else:
        assert plain == "*" or plain.startswith("/")
        assert plain_path(plain.encode("utf-8")) == plain
        assert not any(each in plain for each in ("//", "\\", ";", "?", "#", "%", "\x00")), plain
        assert not {".", ".."} & set(plain.split("/"))
    text = data.decode("utf-8", "replace")
    try:
        pattern = PathPattern.parse(text)
    except PatternMalformed as error:
        _shown(error)
    else:
        named = "/".join("x" if each is None else each for each in ("", *pattern.template)) or text.replace("/*", "/a")
        assert pattern.matches(named), (text, named)
        assert not pattern.matches("")
    try:
        host = HostPattern.parse(text)
    except PatternMalformed as error:
        _shown(error)
    else:
        assert host.matches(plain_host(text.replace("*.", "a.") + ":443")), text


def requests(data: bytes) -> None:
    """Any octets are the same requests however they are split into reads; a head that is accepted has one path."""
    spec, octets = _cuts(data)
    whole = read_requests(octets)
    assert comparable(read_requests(*cut(octets, spec))) == comparable(whole)
    for event in whole:
        if isinstance(event, MessageRefused):
            _shown(event.error)
        elif isinstance(event, RequestHead):
            try:
                plain_path(event.path)
                plain_host(event.host.decode("latin-1"))
            except RequestAmbiguous:
                continue


def responses(data: bytes) -> None:
    """The same of responses, to requests with and without a body in the response, up to the end of the connection."""
    spec, octets = _cuts(data)
    method = (b"GET", b"HEAD", b"POST")[len(spec) % 3]
    for eof in (False, True):
        whole = read_response(octets, method=method, upgrade=bool(spec), eof=eof)
        split = read_response(*cut(octets, spec), method=method, upgrade=bool(spec), eof=eof)
        assert comparable(split) == comparable(whole)
        for event in whole:
            if isinstance(event, MessageRefused):
                _shown(event.error)


def proxy_header(data: bytes) -> None:
    """A header is refused, or complete with the rest behind it, however it is split into reads."""
    spec, octets = _cuts(data)
    whole, split = _header([octets]), _header(cut(octets, spec))
    assert whole == split, (whole, split)
    if isinstance(whole, tuple):
        header, rest = whole
        assert octets.endswith(rest) and len(octets) - len(rest) >= FIXED
        assert header.source is None or 0 <= header.source[1] <= 65535


def mqtt_session(data: bytes) -> None:
    """However the octets of a client are split, both sides get the same, and the broker no message that is refused."""
    spec, octets = _cuts(data)
    whole, split = _session([octets]), _session(cut(octets, spec))
    assert whole == split, (whole, split)
    topics: dict[int | None, str] = {}
    for each in Decoder("client").feed(encode(Connect("c"), Version.V5, "client") + whole[0]):
        if isinstance(each, Publish):
            topic = each.topic or topics[each.properties.topic_alias]
            topics[each.properties.topic_alias] = topic
            assert topic not in _REFUSED_TOPICS and not topic.startswith("$"), topic
            assert not any(name.startswith("svc-") for name, _value in each.properties.user)
        elif isinstance(each, Subscribe):
            assert not any(subscription.filter in _REFUSED_TOPICS for subscription in each.subscriptions)


def _session(reads: list[bytes]) -> tuple[bytes, bytes, str]:
    """What the broker and the client got, and how it ended."""
    pair = Pair().open(connack=Connack(properties=Properties(topic_alias_maximum=5)))
    pair.authorizer.topics = pair.authorizer.filters = _REFUSED_TOPICS
    for each in reads:
        pair.session.client_received(each)
    if pair.ended is not None and pair.ended[1] is not None:
        _shown(pair.ended[1])
    return pair.to_upstream, pair.to_client, str(pair.ended and pair.ended[0])


def _packets(*packets: Packet) -> bytes:
    return b"\x02\x05\x30" + b"".join(encode(each, Version.V5, "client") for each in packets)


def _header(reads: list[bytes]) -> tuple[ProxyHeader, bytes] | str | None:
    parser = ProxyHeaderParser()
    try:
        for number, each in enumerate(reads):
            found = parser.feed(each)
            if found is not None:
                return found[0], found[1] + b"".join(reads[number + 1 :])
    except ProxyHeaderInvalid as error:
        _shown(error)
        return error.defect  # type: ignore[attr-defined]
    return None


def message_payload(data: bytes) -> None:
    """The payload of a receipt is refused or read as one of HTTP or of MQTT; a report shows it in either case."""
    try:
        claims = loads_object(data)
        assert ReceiptClaims.read(claims)
    except JsonRefused:
        return
    except EnvelopeError as error:
        _shown(error)
    text = stored_report(claims, receipt_id(data), signed=True).render()
    assert text.replace("\n", "").isprintable(), repr(text)
    described(receipt_summary("name", data))


def license_file(data: bytes) -> None:
    """A file is refused or has a license in it, which is read back from the file that we write of it."""
    try:
        text = read_armour(data)
    except EnvelopeError as error:
        _shown(error)
        return
    assert read_armour(armoured(text).encode()).content == text.content


def federation_reference(data: bytes) -> None:
    """A text is refused or read as a reference that is written and read back to an equal one."""
    text = data.decode("utf-8", "replace")
    try:
        expected = ExpectedPeer.parse(text)
        reference = FederationReference.parse(text)
    except ReferenceRefused:
        return
    assert FederationReference.parse(str(reference)) == reference
    assert expected.fingerprint.matches(reference.fingerprint)


def package_payload(data: bytes) -> None:
    """A payload is refused or read as content that is written and read back to an equal one."""
    try:
        found = PackageContent.from_payload(data)
    except EnvelopeError:
        return
    assert PackageContent.from_payload(found.to_payload()) == found


def license_payload(data: bytes) -> None:
    """A payload is refused or read as a license that is written, has a state at any time, and can be shown."""
    try:
        found = License.from_payload(data)
    except EnvelopeError as error:
        _shown(error)
        return
    assert License.from_payload(found.to_payload()) == found
    assessed = assess(VerifiedLicense(found, pinned_keys()[0], b""), _NOW)
    report = unverified_report(UnverifiedLicense(license=found), assessed, _NOW).render()
    assert report.replace("\n", "").isprintable(), repr(report)


def _cuts(data: bytes) -> tuple[list[int], bytes]:
    """Where the rest of an input is cut: its first octet says at how many places, which follow."""
    count = data[0] % 8 if data else 0
    return list(data[1 : count + 1]), data[count + 1 :]


def _request(text: str) -> bytes:
    return b"\x02\x05\x30" + text.replace("\n", "\r\n").encode()


_REFUSED_TOPICS = {"no", "n/#"}
_ALIAS = Properties(topic_alias=1, user=(("svc-x", "y"),))
_HEADER = b"\x01\x0e\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x01\x0a\x00\x00\x02\x30\x39\x01\xbbGET /"
_PAYLOAD = (
    b'{"iss":"spiffe://x.org/a","aud":["https://svc.internal/receipt"],"iat":1,"jti":"AAAAAAAAAAAAAAAAAAAAAA","svc":'
    b'{"v":1,"workloadStatementID":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","level":"signRequest","nonce":null,'
    b'"client":null,"server":{"spiffeID":"spiffe://x.org/a","x5t#S256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},'
    b'"tls":null,"request":{"packet":"PUBLISH","version":"5.0","clientId":"c","topic":"a/b","qos":1,"retain":false,'
    b'"packetId":7,"properties":[["payload-format-indicator",1],["correlation-data","AP8"],["user-property",["k","v"]]],'
    b'"body":{"size":0,"sha-256":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","complete":true}},"response":{"packet":'
    b'"PUBACK","reasonCode":0,"reasonName":"Success","ackedBy":"upstream"},"time":{"received":"t","completed":"t"},'
    b'"outcome":"complete"}}'
)
TARGETS = {
    "policy_file": Target(
        policy_file,
        (
            POLICY.replace("NAME", "a").encode(),
            f"{POLICY.replace('NAME', 'a')}---\n{POLICY.replace('NAME', 'b')}".encode(),
            b'{"apiVersion": "svc.internal/v1alpha1", "kind": "SvcPolicy", "metadata": {"name": "n", "namespace": "s"},'
            b' "spec": {"authorization": {"action": "Deny", "mode": "DryRun", "rules": [{"from": [{"namespaces": ["a"],'
            b' "levels": ["DE:S"], "sameCompartment": true}], "to": [{"hosts": ["*.h.org"], "paths": ["/a/{id}"],'
            b' "notMethods": ["PUT"], "snis": ["h.org"], "alpns": ["h2"], "ports": [1], "listeners": ["web"]},'
            b' {"mqttActions": ["Publish", "Subscribe"], "mqttTopics": ["orders/+"], "notMqttTopics": ["orders/a/#"]},'
            b' {"mqttActions": ["Connect"], "mqttClientIDs": ["web-*"]}],'
            b' "when": [{"postQuantum": true, "asked": ["none"]}]}]}}}',
        ),
        inputs=2_000,
    ),
    "policy_engine": Target(_engine.hypothesis.fuzz_one_input, (bytes(64), bytes(range(256))), 4096, 2_000),  # type: ignore[attr-defined]
    "deny_list": Target(deny_list, (DENY_LIST.encode(),), inputs=2_000),
    "path": Target(
        path,
        tuple(b"/ * /a/b/* /users/{id}/orders /a%2fb /%61/..%2e /a;b /a//b /a\\b /%c3%a4 /a%3f *.h.org [::1]".split()),
        256,
    ),
    "requests": Target(
        requests,
        (
            _request("GET / HTTP/1.1\nHost: a\nSvc-Notarization-Level: workload\n\n"),
            _request("POST /a%20b?c HTTP/1.1\nHost: a:1\nContent-Length: 5\n\nhelloGET / HTTP/1.0\n\n"),
            _request("PUT * HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5;x=y\nhello\n0\nX: y\n\n"),
            _request("GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: websocket\n\n\x81\x00"),
        ),
    ),
    "responses": Target(
        responses,
        (
            _request("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"),
            _request("HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\nX: y\n\n"),
            _request("HTTP/1.0 204 x\n\nHTTP/1.1 101 Switching\nUpgrade: websocket\nConnection: upgrade\n\n"),
        ),
    ),
    "message_payload": Target(message_payload, (_PAYLOAD,), inputs=2_000),
    "federation_reference": Target(
        federation_reference, (str(FederationReference(PROD, content().fingerprint, ENDPOINT)).encode(),), 256
    ),
    "package_payload": Target(package_payload, (content().to_payload(),), inputs=1_000),
    "license_file": Target(license_file, (text_of(b"x" * 60).encode(), f"> {text_of(b'x')}".encode("utf-16")), 512),
    "license_payload": Target(license_payload, (LICENSE.to_payload(),), inputs=2_000),
    "proxy_header": Target(
        proxy_header,
        (
            _HEADER,
            b"\x00" + _HEADER[2:].replace(b"\x21\x11\x00\x0c", b"\x21\x11\x00\x10") + b"\x04\x00\x01x",
            b"\x00PROXY TCP4",
        ),
        512,
    ),
    "mqtt_session": Target(
        mqtt_session,
        (
            _packets(*(Publish(topic, b"x", 1, packet_id=1) for topic in ("t", "t", "no", "$x")), Pingreq()),
            _packets(Publish("t", b"", properties=_ALIAS), Publish("", b"", properties=Properties(topic_alias=1))),
            _packets(Publish("no", b"", properties=_ALIAS), Publish("", b"", properties=Properties(topic_alias=1))),
            _packets(
                Subscribe(1, [Subscription("no"), Subscription("n/#"), Subscription("a/+")]), Unsubscribe(2, ["a"])
            ),
            _packets(Acknowledgement(PacketType.PUBREL, 1, 0x92, _ALIAS.replace(topic_alias=None)), Disconnect(4)),
        ),
        512,
        1_000,
    ),
}
