"""
The configuration of the broker: every key, its default, its bounds, and the rules between keys.

Knows YAML models only; what runs is built from it elsewhere.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from svc.identity.matchers import parse_matcher
from svc.naming import DEFAULT_SPIFFE_SOCKET, PORT_BROKER_ADMIN, PORT_BROKER_METRICS
from svc.settings import (
    DURATION_PATTERN,
    Address,
    Duration,
    HostPort,
    Items,
    Settings,
    Size,
    show_duration,
    written_text,
)
from svc.wire.mqtt import filter_defect
from svc.wire.mqtt.topics import SHARE
from svc.workload.values import ListenerName, OptionalAddress, SocketText, TrustDomainText, Wait

#: How the file names clients without an identity.
ANONYMOUS = "anonymous"


def _who(text: str) -> str:
    if text == ANONYMOUS:
        return text
    try:
        parse_matcher(text)
    except Exception as error:
        raise ValueError("anonymous, a SPIFFE ID, or spiffe://domain/path/* or spiffe://domain/*") from error
    return text


def _filter(text: str) -> str:
    if filter_defect(text) or text.startswith(SHARE):
        raise ValueError("a topic filter, such as devices/+/state or devices/#")
    return text


def _path(text: str) -> str:
    if not text:
        raise ValueError("a path of a file")
    return text


def _from_a_second_on(value: float) -> float:
    if value < 1:
        raise ValueError("a duration of at least 1s")
    return value


Who = Annotated[str, AfterValidator(_who), written_text("`anonymous` or matcher", "^anonymous$|^spiffe://.+$")]
DatabasePath = Annotated[str, AfterValidator(_path), written_text("path", "^.+$")]
#: What clients are told in whole seconds: less than one would be told as none, which means something else.
Seconds = Annotated[
    Duration,
    AfterValidator(_from_a_second_on),
    written_text("duration of at least 1s", DURATION_PATTERN, show_duration),
]
TopicFilter = Annotated[str, AfterValidator(_filter), written_text("topic filter", "^.+$")]


class RuleSettings(Settings):
    """Who may publish and subscribe to what; what no rule allows is refused."""

    who: Who
    """`anonymous`, or the identities that the rule is about."""
    publish: Items[TopicFilter] = ()
    """What they may publish to. `$SYS` belongs to the broker."""
    subscribe: Items[TopicFilter] = ()
    """What they may receive: a subscription is granted where one of these filters covers it whole."""


class TlsSettings(Settings):
    """How a listener is protected: by SPIFFE identities on both sides, or by a certificate of the server alone."""

    spiffe: bool = False
    """Mutual TLS 1.3: the broker's X.509-SVID, and that of each client."""
    certificate: str | None = None
    """PEM file with the server's certificate and its chain, for clients without an identity. A renewed pair is taken
    over while the broker runs. *Together*: with `key`."""
    key: str | None = None
    """PEM file with its private key."""
    keyExchange: Literal["default", "require"] = "default"
    """`default` prefers hybrid post-quantum groups, `require` accepts nothing else. *Together*: `require` with `spiffe`
    only."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        files = self.certificate is not None or self.key is not None
        if self.spiffe == files:
            raise ValueError("either spiffe: true, or certificate and key")
        if files and (self.certificate is None or self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise ValueError(f"certificate and key together: {missing} is missing")
        if files and self.keyExchange == "require":
            raise ValueError("spiffe: true beside keyExchange: require, which certificate and key do not promise")
        return self


class ListenerSettings(Settings):
    """One address at which clients connect."""

    name: ListenerName
    """In logs."""
    listen: Address
    """*Together*: without `tls` a loopback address."""
    tls: TlsSettings | None = None
    """Without it clients speak plain MQTT."""
    acl: Items[RuleSettings] | None = None
    """The rules of access. *Together*: required but for a loopback listener without `tls`, whose anonymous clients may
    otherwise do everything."""
    connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Open connections; further ones are closed at once."""
    handshakes: int = Field(default=256, ge=1, le=65536)
    """TLS handshakes at the same time, from their first octet on."""
    proxyProtocol: Literal["off", "v2"] = "off"
    """`v2`: every connection begins with a PROXY protocol version 2 header. *Together*: with `tls` only."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        plain = self.tls is None
        if plain and not _is_loopback(self.listen):
            raise ValueError(
                f"a loopback address, or tls, not listen: {self.listen} alone: anybody could read and write"
            )
        if not plain and self.acl is None:
            raise ValueError("acl, the rules of access: without them nobody may do anything")
        spiffe = self.tls is not None and self.tls.spiffe
        if self.proxyProtocol == "v2" and plain:
            raise ValueError("tls beside proxyProtocol: v2")
        for rule in self.acl or ():
            if spiffe and rule.who == ANONYMOUS:
                raise ValueError("matchers in acl: every client of this listener has an identity")
            if not spiffe and rule.who != ANONYMOUS:
                raise ValueError("who: anonymous in acl: no client of this listener has an identity")
        return self


class LimitSettings(Settings):
    """What clients and sessions may use, and what the broker holds."""

    packet: Annotated[Size, Field(ge=1024, le=268_435_455)] = 1024 * 1024
    """One packet; clients of MQTT 5.0 are told."""
    properties: int = Field(default=100, ge=1, le=10_000)
    """Properties of one packet, user properties included."""
    levels: int = Field(default=200, ge=1, le=1000)
    """Levels of a topic."""
    filters: int = Field(default=1000, ge=1, le=100_000)
    """Topic filters of one packet."""
    sessions: int = Field(default=100_000, ge=1, le=10_000_000)
    """Sessions, connected or not; further clients are refused."""
    sessionsOfIdentity: int = Field(default=10_000, ge=1, le=10_000_000)
    """How many of them one SPIFFE ID may have."""
    sessionExpiry: Seconds = 7 * 86400.0
    """How long a session may outlive its connection; clients that ask for more get this."""
    queued: int = Field(default=1000, ge=1, le=1_000_000)
    """Messages with QoS above 0 that wait for one session; further ones are dropped and counted."""
    queuedOctets: Size = 16 * 1024 * 1024
    """The octets that they take together in memory, about, properties included."""
    received: int = Field(default=100, ge=1, le=65535)
    """Messages with QoS above 0 of one client in progress: its Receive Maximum."""
    subscriptions: int = Field(default=1000, ge=1, le=100_000)
    """Subscriptions of one session; what their filters take together is bounded, too."""
    aliases: int = Field(default=100, ge=0, le=65535)
    """Topic aliases of one client, and towards it; 0 switches both off."""
    retained: int = Field(default=100_000, ge=0, le=10_000_000)
    """Retained messages; further ones are not kept, and counted."""
    retainedOctets: Size = 256 * 1024 * 1024
    """The octets that they take together in memory, about, properties and levels of topics included."""
    connect: Wait = 10.0
    """How long a client may take to its CONNECT, and before that to its TLS handshake."""
    keepAlive: Seconds = 1200.0
    """The longest keep alive; clients of MQTT 5.0 are told."""


class PersistenceSettings(Settings):
    """
    Where the broker keeps what must survive its process.

    Nothing that a client was told is lost over a crash of the process or of the machine: messages with QoS 1 and 2 for
    sessions that last, such sessions with their subscriptions and wills, retained messages, and which QoS 2 messages
    came already. Sessions that end with their connection are not written, and neither are their wills.
    """

    path: DatabasePath
    """SQLite database, made with mode 0600 where it is absent, in a folder of one machine. One process at a time uses
    it. Beside it lie `-wal`, `-shm` and `.reserve`, 8 MiB that are kept back for a full disk."""


class BrokerSettings(Settings):
    """The broker."""

    trustDomain: TrustDomainText | None = None
    """The trust domain that the broker's SVID must be of. *Together*: required where a listener has `tls.spiffe`."""
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    """The SPIFFE Workload API, where a listener has `tls.spiffe`."""
    startTimeout: Wait = 60.0
    """How long the start waits for the first SVID, and while the database is read for a disk that gives nothing; then
    the process ends with status 1 and the reason."""
    metricsAddr: OptionalAddress = HostPort("", PORT_BROKER_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_BROKER_ADMIN)
    """`/livez`, `/readyz`, `/config`; `"0"` or `""` disables. There is no authentication: keep it on loopback."""
    limits: LimitSettings = Field(default_factory=LimitSettings)
    """Bounds."""
    persistence: PersistenceSettings | None = None
    """What survives; without it nothing outlives the process, retained messages and sessions included."""
    listeners: Annotated[Items[ListenerSettings], Field(json_schema_extra={"minItems": 1})]
    """At least one. *Together*: names differ, addresses differ."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if not self.listeners:
            raise ValueError("at least one listener in listeners")
        names = [each.name for each in self.listeners]
        addresses = [str(each.listen) for each in self.listeners if each.listen.port]
        for values, what in ((names, "names"), (addresses, "addresses")):
            twice = sorted({each for each in values if values.count(each) > 1})
            if twice:
                raise ValueError(f"listeners with different {what}, not {twice[0]} twice")
        if self.trustDomain is None and any(each.tls is not None and each.tls.spiffe for each in self.listeners):
            raise ValueError("trustDomain, which listeners with tls.spiffe need")
        return self


def _is_loopback(address: HostPort) -> bool:
    if address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False
