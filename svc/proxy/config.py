"""
The configuration of the proxy: every key, its default, its bounds, and the rules between keys.

Builds no part of the running proxy. A key of a capability that does not exist is an error.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from svc.envelope.envelope import MAX_ENVELOPE
from svc.naming import DEFAULT_NOTARY_DATABASE, DEFAULT_SPIFFE_SOCKET, PORT_PROXY_ADMIN, PORT_PROXY_METRICS
from svc.notary.facts import DEFAULT_ALLOWED, Container, FactsInvalid, WorkloadFacts
from svc.notary.receipt import Redaction
from svc.notary.record_bound import PublishBound, RecordBound, largest_limit, largest_publish
from svc.policyfiles.settings import PolicySettings
from svc.process.settings import DaemonSettings
from svc.process.values import (
    SOCKET_PATTERN,
    AlpnName,
    FilePath,
    ListenerName,
    MatcherText,
    OptionalAddress,
    RemoteAddress,
    SocketText,
    TrustDomainText,
    Upstream,
    Wait,
    parse_upstream,
)
from svc.proxy.connection_settings import MIN_HEAD, LimitSettings, OnRotation, PeerStatementSettings, TimeoutSettings
from svc.proxy.mqtt.artifacts.settings import ArtifactSettings
from svc.proxy.mqtt.client_ids import ClientIdTemplate
from svc.proxy.mqtt.stored.settings import BufferSettings
from svc.settings import (
    ADDRESS_PATTERN,
    DURATION_PATTERN,
    Address,
    Duration,
    HostPort,
    Items,
    Settings,
    Size,
    ValueFormat,
    format_duration,
    format_size,
    parse_duration,
    text_format,
)
from svc.store.postgresql.address import DatabaseAddress
from svc.wire.mqtt import PacketLimits, filter_defect, split_shared
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS

#: Replaces values of labels and annotations that are not shown.
LEFT_OUT: Final = "<left out>"
LevelName = Literal["none", "workload", "logRequest", "signRequest"]
#: Keys that belong to one protocol alone, by where they are.
_HTTP_KEYS: Final = {
    "": ("forwarded", "host", "require", "peerStatement", "collectReceipts"),
    "limits.": ("fields", "body", "idleUpstream"),
    "timeouts.": ("header", "idleUpstream", "response", "stream", "exchange"),
}
#: Those of listeners that record.
_RECORD_KEYS: Final = {"": ("notarization", "maxNotarization"), "limits.": ("head",), "timeouts.": ()}
_MQTT_KEYS: Final = {
    "": ("clientIDs", "artifacts", "ack", "ackUpstream"),
    "limits.": ("packet", "clientID", "subscriptions"),
    "timeouts.": (),
}
_RANKS = {"none": 0, "workload": 1, "logRequest": 2, "signRequest": 3}


def _pq_issuer(value: str) -> str:
    parse_upstream(value)
    return value


def _start_timeout(value: object) -> float | None:
    if value == "never":
        return None
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}; or never") from error
    if seconds <= 0:
        raise ValueError("a duration above 0s, or never")
    return seconds


def _database(value: str) -> str:
    DatabaseAddress.parse(value)
    return value


def _host(value: str) -> str:
    with_port = ":" in value.rpartition("]")[2]
    try:
        address = HostPort.parse(value if with_port else f"{value}:80")
    except ValueError:
        address = HostPort("", 0)
    if not address.host or not address.port:
        raise ValueError(
            "a host name or an IP address (IPv6 in brackets), with a port or without, such as pay.bank.example or"
            " pay.bank.example:8443; no scheme, no path"
        )
    return value


def _not_empty(value: tuple[ListenerSettings, ...]) -> tuple[ListenerSettings, ...]:
    if not value:
        raise ValueError("at least one listener")
    return value


def _client_id(value: str) -> str:
    ClientIdTemplate.parse(value)
    return value


def _topic_filter(value: str) -> str:
    if filter_defect(value) or split_shared(value) is not None:
        raise ValueError("a topic filter of MQTT, such as alarm/#")
    return value


PqIssuerText = Annotated[
    str,
    AfterValidator(_pq_issuer),
    text_format("socket or `host:port`", f"{SOCKET_PATTERN}|{ADDRESS_PATTERN}"),
]
HostText = Annotated[
    str,
    AfterValidator(_host),
    text_format("host, or `host:port`", r"^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[1-9][0-9]{0,4})?$"),
]
ClientIdText = Annotated[str, AfterValidator(_client_id), text_format("pattern", "^.+$")]
FilterText = Annotated[str, AfterValidator(_topic_filter), text_format("topic filter", "^.+$")]
StartTimeout = Annotated[
    float | None,
    BeforeValidator(_start_timeout),
    ValueFormat(
        "duration above 0s, or `never`",
        {"type": "string", "pattern": f"^never$|{DURATION_PATTERN}"},
        lambda seconds: "never" if seconds is None else format_duration(seconds),
    ),
]
DatabaseText = Annotated[str, AfterValidator(_database), text_format("URL", "^postgresql://.+$")]


class NotarySettings(Settings):
    """Where records are stored, how long they are kept, and how they are signed."""

    path: str = DEFAULT_NOTARY_DATABASE
    """The database. Folder and file are made with modes 0700 and 0600 where they are absent."""
    database: DatabaseText | None = None
    """Instead of a file, a database that replicas share, see
    [operations](operations.md#replicas-that-share-one-notary): `postgresql://user@host:5432/name?sslmode=verify-full&sslrootcert=/path`,
    or `?host=/folder` of a socket. Without a password: use a passfile, a service or a client
    certificate; a server on another machine must be verified. *Together*: not beside `path`."""
    retention: Duration = 90 * 86400.0
    """How long records are kept; pruned every ten minutes, while the clock runs evenly."""
    maxBytes: Annotated[Size, Field(ge=2**24, le=2**44)] | None = None
    """What the records may take where the disk is not this proxy's alone; without it all that is free. Near it, and
    near a full disk, identities [share](security.md#shares) what is left. *Together*: not beside `database`."""
    profile: Literal["hybrid", "pq", "classical", "cnsa2"] = "hybrid"
    """Which signatures are made, see [profiles](receipts.md#profiles). `classical` logs a warning at each start."""
    pqIssuer: PqIssuerText | None = None
    """The address of the post-quantum issuer. *Together*: required unless `profile: classical`, or all listeners are
    outbound."""
    pqIssuerID: MatcherText | None = None
    """The SPIFFE ID of the issuer, or a pattern of it. *Together*: required where `pqIssuer` is `host:port` (mutual TLS
    with the SVID)."""
    pqBundle: str | None = None
    """The post-quantum roots that a new leaf must chain to; else `SVC_PQ_BUNDLE`, else `pq-bundle.json` beside the
    Workload API socket if it exists. A file that is named must exist; file and folder must be writable by root and
    the own user only."""
    redactHeaders: Items[str] = ()
    """Headers and trailers that receipts hold as salted digests only, beside `authorization`,
    `proxy-authorization`, `cookie`, `set-cookie` and `x-api-key`."""
    redactQuery: bool = False
    """The same for the query."""
    readers: Items[MatcherText] = ()
    """Identities that may list the receipts of all clients, and read them by id, without the salts."""
    receiptsPerSecond: int | None = Field(default=None, ge=1, le=100_000)
    """Records of one client identity, signed receipts and those of `logRequest` alike, in the long run; without it
    identities [share](security.md#shares) what the proxy can sign and write. Beyond it the connections of the identity
    are not read, and after `rateWait` the answer is 429 `notary_rate` with `Retry-After`."""
    receiptsBurst: int = Field(default=400, ge=1, le=1_000_000)
    """The same at once. Without effect without `receiptsPerSecond`."""
    recordOctetsPerSecond: Annotated[Size, Field(ge=1024, le=2**30)] | None = None
    """Octets that the records of one client identity may add to the database, in the long run; beyond it as
    of `receiptsPerSecond`. See [sizing](operations.md#sizing)."""
    recordOctetsBurst: Annotated[Size, Field(ge=2**20, le=2**40)] = 2**30
    """The same at once. A request under way counts with the largest record that the limits of its listener allow.
    Without effect without `recordOctetsPerSecond`."""
    queue: int = Field(default=1024, ge=1, le=65536)
    """Records that one identity may have in the queue to their signature and its commit, while no other one has any;
    beyond it as of `receiptsPerSecond`. Several identities [share](security.md#shares) a shorter one."""
    rateWait: Annotated[Duration, Field(ge=0.0, le=60.0)] = 5.0
    """How long a request, or a message of MQTT, may wait for these three before it is refused; 0 refuses at once."""

    @model_validator(mode="after")
    def _one_database(self) -> Self:
        if self.database is not None and "path" in self.model_fields_set:
            raise ValueError("either path or database, not both")
        if self.database is not None and self.maxBytes is not None:
            raise ValueError("maxBytes for a database in a file alone")
        return self

    @model_validator(mode="after")
    def _issuer_with_id(self) -> Self:
        if self.pqIssuer is not None and not self.pqIssuer.startswith("unix:") and self.pqIssuerID is None:
            raise ValueError("pqIssuerID, the SPIFFE ID of an issuer that is reached by host:port")
        return self


class ContainerSettings(Settings):
    """One container of the workload's pod."""

    name: str
    """The name in the pod."""
    image: str
    """The image as the pod names it."""
    imageDigest: str | None = None
    """Its digest, `sha256:…`."""
    init: bool = False
    """Whether it is an init container."""


class WorkloadSettings(Settings):
    """The workload facts in the statement: from a downward-API folder, or explicit values."""

    podInfo: str | None = None
    """A downward-API folder with the files `namespace`, `serviceAccount`, `podName`, `podUID`, `node` (text), `labels`,
    `annotations` (lines `name="value"`) and `containers` (a JSON array of mappings as below); each up to 512 KiB.
    *Together*: none of the explicit values beside it."""
    namespace: str | None = None
    """Namespace of the pod."""
    serviceAccount: str | None = None
    """Service account of the pod."""
    podName: str | None = None
    """Name of the pod; by default the host name."""
    podUID: str | None = None
    """Identifier of the pod."""
    node: str | None = None
    """The machine that it runs on."""
    containers: Items[ContainerSettings] = ()
    """The containers of the pod."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by name; only those on the allow-list are published, the names of the others are listed in `truncated`."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """The same for annotations."""
    allowLabels: Items[str] = ()
    """The allow-list, beside `svc.internal/compartment`, `mls.svc.internal/level`, `mls.svc.internal/compartment`."""
    allowAnnotations: Items[str] = ()
    """The same for annotations; both lists apply to labels and annotations."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        explicit = self.model_fields_set - {"podInfo", "allowLabels", "allowAnnotations"}
        if self.podInfo is not None and explicit:
            raise ValueError(f"either podInfo or explicit values, not both ({', '.join(sorted(explicit))})")
        try:
            self.facts("localhost")
        except FactsInvalid as error:
            raise ValueError(f"facts that a statement can contain: {error}") from error
        return self

    @property
    def allowed(self) -> tuple[str, ...]:
        """The names of labels and annotations that may be published."""
        return (*DEFAULT_ALLOWED, *self.allowLabels, *self.allowAnnotations)

    def facts(self, host_name: str) -> WorkloadFacts:
        """Take the explicit values."""
        containers = [
            Container(name=each.name, image=each.image, image_digest=each.imageDigest, init=each.init)
            for each in self.containers
        ]
        return WorkloadFacts.explicit(
            host_name=host_name,
            namespace=self.namespace,
            service_account=self.serviceAccount,
            pod_name=self.podName,
            pod_uid=self.podUID,
            node=self.node,
            containers=containers or None,
            labels=self.labels or None,
            annotations=self.annotations or None,
            allow=self.allowed,
        )


class ListenerSettings(Settings):
    """One listener."""

    name: ListenerName
    """In logs. *Together*: names differ."""
    protocol: Literal["http", "tcp", "mqtt"]
    """`http`: HTTP/1.1 (and 1.0 from clients). `tcp`: [octets of any protocol](tcp.md), authorized once for each
    connection, without notarization. `mqtt`: [MQTT 3.1.1 and 5.0](mqtt-proxy.md), authorized for each topic.
    *Together*: with `tcp` and `mqtt` no keys that are about requests, in `limits` and `timeouts`
    either."""
    direction: Literal["inbound", "outbound"]
    """Inbound: mutual TLS from clients, plain to the application. Outbound: plain from this machine, mutual TLS to the
    peer."""
    listen: Address
    """The address to listen on: `:8443` and `[::]:8443` take IPv6 and IPv4 (`:8443` IPv4 alone on a host without IPv6),
    `0.0.0.0:8443` IPv4 alone. *Together*: addresses differ; a loopback address for outbound."""
    upstream: Upstream
    """The application, or for outbound the peer's proxy (`host:port` only; a DNS name is sent as SNI)."""
    peer: MatcherText | None = None
    """The SPIFFE ID of the upstream, or a pattern of it. *Together*: outbound only, and required there."""
    alpn: Items[AlpnName] = ()
    """Application protocols (ALPN), best first: accepted of clients inbound, offered to the peer outbound. Without any
    ALPN is ignored. A client that offers only others is refused. *Together*: `protocol: tcp` only; `http` has
    `http/1.1`, `mqtt` has `mqtt`."""
    clientIDs: Annotated[Items[ClientIdText], Field(max_length=64)] = ()
    """Patterns, of which a client identifier must match one: `{namespace}`, `{serviceAccount}`, `{trustDomain}` and
    `{name}` (the last segment of the SPIFFE ID's path) stand for what is known of the client, `*` for any characters.
    Without any all are accepted, an empty one too. *Together*: `protocol: mqtt` inbound only."""
    artifacts: ArtifactSettings | None = None
    """Publish the workload statement on the broker, and the receipts of messages, see
    [artifacts](mqtt-proxy.md#artifacts); `{}` for all defaults. *Together*: `protocol: mqtt` inbound only."""
    ack: Literal["upstream", "middleware"] = "upstream"
    """Who acknowledges messages. `upstream`: the broker; the proxy keeps nothing. `middleware`: the proxy, when they
    are durable in its buffer, also while the broker is away, see
    [store and forward](mqtt-proxy.md#store-and-forward). *Together*: `protocol: mqtt` only."""
    ackUpstream: Annotated[Items[FilterText], Field(max_length=64)] = ()
    """Topics of which the client gets the acknowledgement of the broker all the same, with its reason code; messages to
    them are stored and forwarded, too. *Together*: `ack: middleware` only."""
    keyExchange: Literal["default", "require"] = "default"
    """`default` prefers hybrid groups (X25519MLKEM768, SecP256r1MLKEM768, SecP384r1MLKEM1024) and accepts X25519, P-256
    and P-384; `require` accepts hybrid groups only."""
    proxyProtocol: Literal["off", "v2"] = "off"
    """Every connection begins with a PROXY protocol version 2 header, whose client address is used in logs and in
    `Forwarded`, and nowhere else. *Together*: inbound only."""
    forwarded: Literal["off", "rfc7239"] = "off"
    """`rfc7239` adds the field `Forwarded` to requests: the client's address and port, the name of this listener, Host
    and `https`, see [applications](applications.md#forwarded). What clients send under this name is removed in any
    case. *Together*: inbound only."""
    host: HostText | None = None
    """What replaces the Host of each request, and the authority of a target in absolute form, so that the peer's
    application finds its virtual host; by default Host stays as the local application sent it. *Together*: outbound
    only."""
    onRotation: OnRotation = "keep"
    """What becomes of connections of clients, outbound of those to the peer, when this proxy has another SVID than that
    under which they were made, see [rotation](operations.md#rotation): `keep` lets them go on, `drain` asks them to
    end, `reauth` closes those whose former SVID would now be refused. A refused peer is always closed."""
    notarization: LevelName = "none"
    """The level that every request or [message](mqtt-proxy.md#receipts) gets at least. *Together*: inbound `http` and
    `mqtt` only."""
    maxNotarization: LevelName = "signRequest"
    """The highest level: clients may request it with `Svc-Notarization-Level`, and policies may demand it. *Together*:
    at least `notarization`; inbound `http` and `mqtt` only."""
    require: Items[Literal["workload", "receipt"]] = ()
    """What the peer has to prove, see [verified answers](applications.md#verified-answers). `workload`: its statement,
    verified for each connection before a request is sent on it. `receipt`: that, and the receipt of each request,
    verified before its response ends. *Together*: outbound only; by `notary.profile` and the post-quantum roots of
    `notary.pqBundle`."""
    peerStatement: PeerStatementSettings | None = None
    """Conditions on the statement of the peer, see [verified answers](applications.md#verified-answers). *Together*:
    with `require` only."""
    collectReceipts: bool = False
    """Keep the verified receipts of requests in the notary database: of those for which the application asks
    `signRequest`, with `require: [receipt]` of all. As with `require: [workload]` every connection is verified.
    *Together*: outbound only."""
    limits: LimitSettings = LimitSettings()
    """Limits for connections and messages."""
    timeouts: TimeoutSettings = TimeoutSettings()
    """Time limits."""

    @property
    def notarizes(self) -> bool:
        """Whether its requests can be notarized, or its messages be recorded."""
        if self.protocol == "mqtt" and _RANKS[self.maxNotarization] < _RANKS["logRequest"]:
            return False
        return self.direction == "inbound" and self.protocol != "tcp"

    def publish_bound(self, redaction: Redaction) -> PublishBound:
        """The largest record of a message."""
        return PublishBound(self.limits.head, PacketLimits().properties, self.limits.clientID, redaction)

    @property
    def demanded_of_peer(self) -> LevelName:
        """The level that every request to the peer asks for at least; ``none`` where the peer proves nothing more."""
        if "receipt" in self.require:
            return "signRequest"
        return "workload" if self.require or self.collectReceipts else "none"

    @model_validator(mode="after")
    def _protocol(self) -> Self:
        if self.protocol != "mqtt" and (key := self._given(_MQTT_KEYS)):
            raise ValueError(f"no {key} here: it belongs to mqtt listeners")
        if self.protocol != "tcp" and self.alpn:
            raise ValueError(
                f"no alpn here: it belongs to tcp listeners, a listener for {self.protocol.upper()} has"
                f" {'http/1.1' if self.protocol == 'http' else 'mqtt'}"
            )
        if self.protocol == "http":
            if self.timeouts.lifetime is not None:
                raise ValueError("no timeouts.lifetime here: it belongs to tcp and mqtt listeners")
        elif key := self._given(_HTTP_KEYS) or (self._given(_RECORD_KEYS) if self.protocol == "tcp" else ""):
            why = "a tcp listener relays octets" if self.protocol == "tcp" else "an mqtt listener relays messages"
            raise ValueError(f"no {key} here: {why} and knows no requests")
        if self.clientIDs and self.direction == "outbound":
            raise ValueError("no clientIDs here: they belong to inbound listeners, whose clients have an identity")
        if self.protocol == "mqtt" and self.direction == "outbound" and "head" in self.limits.model_fields_set:
            raise ValueError("no limits.head here: the peer of an outbound listener notarizes")
        if self.artifacts is not None and self.direction == "outbound":
            raise ValueError("no artifacts here: they belong to inbound listeners, whose upstream is the own broker")
        if self.ackUpstream and self.ack != "middleware":
            raise ValueError("ack: middleware beside ackUpstream: without it the broker acknowledges everything")
        return self

    def _given(self, keys: dict[str, tuple[str, ...]]) -> str:
        """The first of some keys that is in the file; empty without one."""
        given = {"": self.model_fields_set}
        given |= {"limits.": self.limits.model_fields_set, "timeouts.": self.timeouts.model_fields_set}
        return next((f"{place}{key}" for place, names in keys.items() for key in names if key in given[place]), "")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.direction == "outbound":
            if self.peer is None:
                raise ValueError("peer, the SPIFFE ID that the upstream of an outbound listener must have")
            if isinstance(self.upstream, str):
                raise ValueError("upstream host:port, since an outbound listener reaches another host")
            if not _is_loopback(self.listen.host):
                raise ValueError("a loopback address to listen on, since an outbound listener takes plain connections")
            if self.proxyProtocol != "off":
                raise ValueError("no proxyProtocol here: an outbound listener takes connections of this machine only")
            if self.forwarded != "off":
                raise ValueError("no forwarded here: it belongs to inbound listeners, which have remote clients")
            if self.peerStatement is not None and not self.require:
                raise ValueError("require beside peerStatement: without it the statement of the peer is not verified")
            if self.model_fields_set & {"notarization", "maxNotarization"}:
                raise ValueError("no notarization here: the peer of an outbound listener notarizes")
        elif self.peer is not None:
            raise ValueError("no peer here: it belongs to outbound listeners, the policy admits inbound peers")
        elif self.peerStatement is not None:
            raise ValueError("no peerStatement here: it belongs to outbound listeners, which have a peer")
        elif self.require or self.collectReceipts:
            raise ValueError("no require or collectReceipts here: they belong to outbound listeners, which have a peer")
        elif self.host is not None:
            raise ValueError("no host here: it belongs to outbound listeners, inbound ones keep the Host of the client")
        if _RANKS[self.notarization] > _RANKS[self.maxNotarization]:
            raise ValueError(f"a maxNotarization of at least {self.notarization}")
        return self


def _record_problem(number: int, listener: ListenerSettings, redaction: Redaction) -> InitErrorDetails | None:
    """Find the limit of a listener under which a record could become too large, and its largest value."""
    if not listener.notarizes or _RANKS[listener.maxNotarization] < _RANKS["logRequest"]:
        return None
    limits = listener.limits
    if listener.protocol == "mqtt":
        return _publish_problem(number, listener, redaction)
    bound = RecordBound(limits.head, limits.fields, redaction)
    if bound.fits:
        return None
    largest_head = largest_limit("head", bound)
    if largest_head < MIN_HEAD or "head" not in limits.model_fields_set:
        key, value, most = "fields", str(limits.fields), str(largest_limit("fields", bound))
        other = f"head {format_size(limits.head)}"
    else:
        key, value, most = "head", format_size(limits.head), format_size(largest_head)
        other = f"fields {limits.fields}"
    return _too_large(number, key, value, f"at most {most} beside {other}")


def _publish_problem(number: int, listener: ListenerSettings, redaction: Redaction) -> InitErrorDetails | None:
    limits, bound = listener.limits, listener.publish_bound(redaction)
    if bound.fits:
        return None
    # That of the longest client identifier is above MIN_HEAD.
    expected = f"at most {format_size(largest_publish(bound))} beside clientID {limits.clientID}"
    return _too_large(number, "head", format_size(limits.head), expected)


def _too_large(number: int, key: str, value: str, expected: str) -> InitErrorDetails:
    expected = (
        f"{expected} and what is redacted, so that the largest receipt fits {format_size(MAX_ENVELOPE)} (or a"
        " maxNotarization of workload)"
    )
    where = ("listeners", number, "limits", key)
    return InitErrorDetails(
        type=PydanticCustomError("record_too_large", "{expected}", {"expected": expected}), loc=where, input=value
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ProxySettings(DaemonSettings):
    """The whole file."""

    trustDomain: TrustDomainText
    """The trust domain that the SVID of this proxy must be of, and that `policy.default: allow` admits."""
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    """The SPIFFE Workload API."""
    spiffeHint: str | None = None
    """The SVID to use where the Workload API offers several: the one with this hint; without it the first."""
    startTimeout: StartTimeout = 60.0
    """How long the start waits for the first SVID, and again for the first post-quantum leaf; then the process ends
    with status 1 and the reason. With `never` it goes on waiting: `/readyz` and the log say what for."""
    withdrawalGrace: Wait = WITHDRAWAL_GRACE_SECONDS
    """How long the Workload API must go on answering that this process has no identity, until the identity ends; an
    entry that is replaced within this time is not noticed. Outages never end an identity."""
    drainTimeout: Duration = 30.0
    """How long running exchanges may take at the end; then they are cut."""
    metricsAddr: OptionalAddress = HostPort("", PORT_PROXY_METRICS)
    """`/metrics`; without a host, as by default, on IPv6 and IPv4."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_PROXY_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/drain`, `/config`. There is no
    authentication: keep it on loopback."""
    accessLog: Literal["off", "on", "path"] = "off"
    """One log record for each exchange, however it ended; `path` adds the path without the query, which may be
    personal data."""
    auditLog: Literal["off", "denials", "all"] = "denials"
    """Which access attempts are [audit records](telemetry.md#audit-records): none; connections and requests that were
    refused by the identity of their peer, with the path of the request; or also every exchange with a record."""
    notary: NotarySettings = Field(default_factory=lambda: NotarySettings(pqIssuer="unix:///run/svc/pq.sock"))
    """Where records are stored and how they are signed. With outbound listeners alone only what `require` and
    `collectReceipts` name is used."""
    workload: WorkloadSettings = WorkloadSettings()
    """The workload facts in the statement, beside the identity."""
    mqttBuffer: BufferSettings = BufferSettings()
    """Where listeners with `ack: middleware` store messages. *Together*: with such a listener only."""
    policy: PolicySettings = PolicySettings()
    """Which clients of inbound listeners are admitted."""
    controlPlane: RemoteAddress | None = None
    """The [manager](policies-kubernetes.md#within-a-second), with the SPIFFE ID `/svc/manager` of `trustDomain`, which
    gives the policies of the cluster by mutual TLS as soon as they change. `policy.clusterFiles` are in force until its
    first answer. *Together*: with `policy.clusterFiles`, without which a start would be under no policy of the
    cluster."""
    controlPlaneToken: FilePath | None = None
    """The file with the service account token by which the manager knows the pod, and issues its
    [statement](manager.md#central-statements). *Together*: with `controlPlane`."""
    listeners: Annotated[Items[ListenerSettings], AfterValidator(_not_empty), Field(json_schema_extra={"minItems": 1})]
    """At least one."""

    @property
    def notarizes(self) -> bool:
        """Whether there is a notary: outbound listeners leave that to their peers, those for TCP have none."""
        return any(each.notarizes or each.artifacts is not None for each in self.listeners)

    @property
    def stores(self) -> bool:
        """Whether there is a notary database: for the own notary, or for the receipts of peers."""
        return self.notarizes or any(each.collectReceipts for each in self.listeners)

    @property
    def buffers(self) -> bool:
        """Whether there is a buffer of MQTT messages."""
        return any(each.ack == "middleware" for each in self.listeners)

    @model_validator(mode="after")
    def _buffer(self) -> Self:
        if "mqttBuffer" in self.model_fields_set and not self.buffers:
            raise ValueError("a listener with ack: middleware beside mqttBuffer, which nothing else uses")
        for listener in self.listeners:
            if listener.ack == "middleware" and listener.limits.packet > self.mqttBuffer.sessionBytes:
                raise ValueError(
                    f"mqttBuffer.sessionBytes of at least {format_size(listener.limits.packet)}, the limits.packet of"
                    f" {listener.name}"
                )
        if self.buffers and self.stores and self.mqttBuffer.path == self.notary.path:
            raise ValueError(f"mqttBuffer.path and notary.path that differ; both are {self.notary.path}")
        return self

    @model_validator(mode="after")
    def _cluster_at_the_start(self) -> Self:
        if self.controlPlane is not None and not self.policy.clusterFiles:
            raise ValueError("policy.clusterFiles beside controlPlane: they are in force until the manager answers")
        return self

    @model_validator(mode="after")
    def _token_for_the_manager(self) -> Self:
        if self.controlPlaneToken is not None and self.controlPlane is None:
            raise ValueError("controlPlane beside controlPlaneToken: the manager that the token is for")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names: set[str] = set()
        addresses: set[str] = set()
        for listener in self.listeners:
            if listener.name in names:
                raise ValueError(f"listeners with distinct names; {listener.name} appears twice")
            names.add(listener.name)
            address = str(listener.listen)
            if listener.listen.port and address in addresses:
                raise ValueError(f"listeners with distinct addresses; {address} appears twice")
            addresses.add(address)
        return self

    @model_validator(mode="after")
    def _issuer_where_needed(self) -> Self:
        profile = self.notary.profile
        if self.notarizes and profile != "classical" and self.notary.pqIssuer is None:
            expected = (
                f"pqIssuer, which profile {profile} needs (unix:///path of svc-authority, or host:port),"
                " or profile: classical"
            )
            kind = PydanticCustomError("issuer_missing", "{expected}", {"expected": expected})
            problem = InitErrorDetails(type=kind, loc=("notary",), input={})
            raise ValidationError.from_exception_data("notary", [problem])
        return self

    @model_validator(mode="after")
    def _recordable(self) -> Self:
        redaction = Redaction.of(self.notary.redactHeaders, query=self.notary.redactQuery)
        found = (_record_problem(number, each, redaction) for number, each in enumerate(self.listeners))
        problems = [each for each in found if each is not None]
        if problems:
            raise ValidationError.from_exception_data("limits", problems)
        return self


def redacted_config(settings: ProxySettings) -> dict[str, Any]:
    """
    Return the configuration as ``GET /config`` shows it: values for JSON under the names of the file.

    The file holds no secret: keys come from the Workload API, and a database URL with a password is refused. Labels and
    annotations of the pod are left out unless statements may contain them.
    """
    shown = settings.model_dump(mode="json")
    allowed = frozenset(settings.workload.allowed)
    for kind in ("labels", "annotations"):
        values: dict[str, str] = shown["workload"][kind]
        shown["workload"][kind] = {name: value if name in allowed else LEFT_OUT for name, value in values.items()}
    return shown
