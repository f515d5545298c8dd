"""
The configuration of the broker: every key, its default, its bounds, the rules between keys, and what a reload may
change.

What runs is built from it in :mod:`svc.broker.service`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from svc.broker.access import NAME_LEVEL, NamePattern
from svc.broker.errors import BrokerError
from svc.identity.matchers import Matcher, parse_matcher
from svc.naming import DEFAULT_SPIFFE_SOCKET, PORT_BROKER_ADMIN, PORT_BROKER_METRICS
from svc.policyfiles.document import TopicFilter
from svc.policyfiles.settings import PolicyFile
from svc.process.settings import DaemonSettings
from svc.process.values import FilePath, ListenerName, OptionalAddress, SocketText, TrustDomainText, Wait
from svc.settings import (
    DURATION_PATTERN,
    Address,
    Duration,
    HostPort,
    Items,
    Settings,
    Size,
    format_duration,
    text_format,
)
from svc.transport.client_certificates import ClientAuthorities

#: The word of the file for clients without an identity.
ANONYMOUS = "anonymous"
#: How the names of clients without a SPIFFE ID begin.
USER = "user:"
CERTIFICATE = "certificate:"
_PATTERN_PART = re.compile("%[cu]")


def parse_who(text: str) -> Matcher | NamePattern | None:
    """
    Read the identities of a rule; None is clients without one.

    Raises:
        SvcError, ValueError: it names nobody.
    """
    if text == ANONYMOUS:
        return None
    for prefix, kind in ((USER, "user"), (CERTIFICATE, "certificate")):
        name = text.removeprefix(prefix)
        if name and name != text and name.isprintable():
            return NamePattern(kind, name)  # type: ignore[arg-type]
    return parse_matcher(text)


def _check_who(text: str) -> str:
    try:
        parse_who(text)
    except Exception as error:
        raise ValueError(
            "anonymous, user:NAME, certificate:NAME (* in a name is any characters), a SPIFFE ID, or "
            "spiffe://domain/path/* or spiffe://domain/*"
        ) from error
    return text


def _check_levels(text: str) -> str:
    if any(_PATTERN_PART.search(level) and len(level) > 2 for level in text.split("/")):
        raise ValueError("a topic filter in which %c and %u are whole levels, such as devices/%u/state")
    return text


RuleFilter = Annotated[TopicFilter, AfterValidator(_check_levels)]


def _check_at_least_a_second(value: float) -> float:
    if value < 1:
        raise ValueError("a duration of at least 1s")
    return value


Who = Annotated[
    str,
    AfterValidator(_check_who),
    text_format(
        "`anonymous`, matcher, `user:NAME` or `certificate:NAME`", "^anonymous$|^(spiffe://|user:|certificate:).+$"
    ),
]
#: MQTT has whole seconds: less than one would be sent as 0, which has another meaning.
Seconds = Annotated[
    Duration,
    AfterValidator(_check_at_least_a_second),
    text_format("duration of at least 1s", DURATION_PATTERN, format_duration),
]


class RuleSettings(Settings):
    """One access rule. What no rule allows is refused, and so are clients to which no rule applies."""

    who: Who
    """`anonymous`, or the identities to which the rule applies: SPIFFE IDs, users (`user:NAME`) or names in
    certificates (`certificate:NAME`); `*` in such a name stands for any characters. They may connect, whatever else
    the rule allows, unless it only denies."""
    publish: Items[RuleFilter] = ()
    """Topics that they may publish to; none below `$SYS`. The levels `%c` and `%u`, here and below, stand for
    [the client's identifier and name](#filters-with-names-of-clients)."""
    subscribe: Items[RuleFilter] = ()
    """Topics that they may receive: a subscription is granted where one of these filters covers its filter."""
    denyPublish: Items[RuleFilter] = ()
    """Topics that they may not publish to, whatever any rule allows."""
    denySubscribe: Items[RuleFilter] = ()
    """Topics that they may not receive: a subscription is refused where its filter could match one of them."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        filters = (*self.publish, *self.subscribe, *self.denyPublish, *self.denySubscribe)
        named = self.who.startswith((USER, CERTIFICATE))
        if not named and any(NAME_LEVEL in each.split("/") for each in filters):
            raise ValueError(f"user:NAME or certificate:NAME in who with {NAME_LEVEL}: {self.who} has no such name")
        return self


class TlsSettings(Settings):
    """The TLS of a listener: SPIFFE identities on both sides, or TLS 1.2 and 1.3 for clients without one."""

    spiffe: bool = False
    """Mutual TLS 1.3: the broker's X.509-SVID, and that of each client."""
    svid: bool = False
    """The broker presents its X.509-SVID to clients without a SPIFFE ID, in place of `certificate` and `key`."""
    certificate: str | None = None
    """PEM file with the server's certificate and its chain, for clients without a SPIFFE ID. A renewed pair is
    loaded while the broker runs. *Together*: with `key`."""
    key: str | None = None
    """PEM file with its private key."""
    clientAuthorities: Items[FilePath] = ()
    """PEM files with the authorities of clients: each client presents an ordinary certificate that one of them issued,
    at most four intermediate certificates away. Loaded again when they change. *Together*: not with `spiffe`."""
    clientName: Literal["commonName", "dns", "uri", "email"] = "commonName"
    """Where the name of a client is in its certificate, exactly once: the common name of its subject, or a subject
    alternative name. *Together*: with `clientAuthorities`."""
    clientRevocations: FilePath | None = None
    """PEM file with the revocation list of each authority that issues certificates of clients: they are refused where
    they are revoked, and where a list is missing or has expired. Loaded again when it changes. *Together*: with
    `clientAuthorities`."""
    keyExchange: Literal["default", "require"] = "default"
    """`default` prefers hybrid post-quantum groups, `require` accepts no others. *Together*: `require` with `spiffe`
    only."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        files = self.certificate is not None or self.key is not None
        if (self.spiffe, self.svid, files).count(True) != 1:
            raise ValueError("either spiffe: true, or certificate and key, or svid: true")
        if files and (self.certificate is None or self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise ValueError(f"certificate and key together: {missing} is missing")
        if not self.spiffe and self.keyExchange == "require":
            raise ValueError("spiffe: true with keyExchange: require; certificate and key do not allow it")
        if self.spiffe and self.clientAuthorities:
            raise ValueError("either spiffe: true or clientAuthorities")
        if not self.clientAuthorities and (self.clientName != "commonName" or self.clientRevocations is not None):
            raise ValueError("clientAuthorities with clientName or clientRevocations")
        return self

    @property
    def authorities(self) -> ClientAuthorities | None:
        """How clients are verified; None where they present no ordinary certificate."""
        if not self.clientAuthorities:
            return None
        return ClientAuthorities(self.clientAuthorities, self.clientName, self.clientRevocations or "")

    @property
    def presents_svid(self) -> bool:
        """Whether the broker needs an SVID for it."""
        return self.spiffe or self.svid


ClientKind = Literal["spiffe", "certificate", "user", "anonymous"]
#: By the kind of a listener's clients: how `who` begins in its rules, and what was expected there.
_WHO_OF: dict[ClientKind, tuple[str, str]] = {
    "spiffe": ("spiffe://", "matchers in acl: every client of this listener has an identity, which is a SPIFFE ID"),
    "certificate": (CERTIFICATE, "who: certificate:NAME in acl: every client of this listener has a certificate"),
    "user": (USER, "who: user:NAME in acl: every client of this listener logs in with a password"),
    "anonymous": (ANONYMOUS, "who: anonymous in acl: no client of this listener has an identity"),
}


class BrokerListenerSettings(Settings):
    """One address to which clients connect."""

    name: ListenerName
    """Its name in logs."""
    listen: Address
    """The address: `:8883` and `[::]:8883` accept IPv6 and IPv4 (`:8883` IPv4 only on a host without IPv6),
    `0.0.0.0:8883` IPv4 only. *Together*: without `tls` a loopback address."""
    tls: TlsSettings | None = None
    """TLS; without it clients use plain MQTT."""
    passwords: bool = False
    """Clients log in with a user name and a password of `passwordFile`. *Together*: with `passwordFile`; not with
    `tls.spiffe` or `tls.clientAuthorities`."""
    acl: Items[RuleSettings] | None = None
    """The access rules. *Together*: required except for a loopback listener without `tls` and `passwords`, whose
    clients may do everything without them."""
    connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Open connections; further ones are closed at once. Identities [share](security.md#shares) the last tenth."""
    handshakes: int = Field(default=256, ge=1, le=65536)
    """Concurrent TLS handshakes, counted from their first octet on."""
    proxyProtocol: Literal["off", "v2"] = "off"
    """`v2`: every connection begins with a PROXY protocol version 2 header. *Together*: with `tls` only."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        plain = self.tls is None
        if plain and not _is_loopback(self.listen):
            what = "any host could read passwords" if self.passwords else "any host could read and write"
            raise ValueError(f"a loopback address, or tls, not listen: {self.listen} without TLS: {what}")
        if (not plain or self.passwords) and self.acl is None:
            raise ValueError("acl, the access rules: without them no client may connect")
        if self.passwords and self.clients not in ("user", "anonymous"):
            raise ValueError(
                "passwords without tls.spiffe and tls.clientAuthorities: one of them identifies the clients"
            )
        if self.proxyProtocol == "v2" and plain:
            raise ValueError("tls with proxyProtocol: v2")
        prefix, expected = _WHO_OF[self.clients]
        for rule in self.acl or ():
            if not rule.who.startswith(prefix):
                raise ValueError(expected)
        return self

    @property
    def clients(self) -> ClientKind:
        """How the clients are identified."""
        if self.tls is not None and self.tls.spiffe:
            return "spiffe"
        if self.tls is not None and self.tls.clientAuthorities:
            return "certificate"
        return "user" if self.passwords else "anonymous"


class BrokerLimitSettings(Settings):
    """The limits of packets, sessions, connections and the broker."""

    packet: Annotated[Size, Field(ge=1024, le=268_435_455)] = 1024 * 1024
    """Size of a packet; announced to clients of MQTT 5.0."""
    properties: int = Field(default=100, ge=1, le=10_000)
    """Properties of a packet, user properties included."""
    levels: int = Field(default=200, ge=1, le=1000)
    """Levels of a topic."""
    filters: int = Field(default=1000, ge=1, le=100_000)
    """Topic filters of a packet."""
    sessions: int = Field(default=100_000, ge=1, le=10_000_000)
    """Sessions, connected or not; further clients are refused. Identities [share](security.md#shares) the last tenth,
    so that one with many gets no more of it."""
    sessionsOfIdentity: int | None = Field(default=None, ge=1, le=10_000_000)
    """How many of them one SPIFFE ID, user or name in a certificate may have, whatever is free."""
    sessionExpiry: Seconds = 7 * 86400.0
    """How long a session may outlive its connection; clients that request more get this."""
    queued: int = Field(default=1000, ge=1, le=1_000_000)
    """Messages with QoS above 0 to one client that are queued or unacknowledged; further ones are dropped, and
    counted."""
    queuedOctets: Size = 16 * 1024 * 1024
    """The memory that they take together, approximately, properties included."""
    queuedTotal: Size = 1024 * 1024 * 1024
    """The same of all clients, a message counting for each of them; further ones are dropped, and counted. Identities
    share the last tenth as that of `sessions`."""
    received: int = Field(default=100, ge=1, le=65535)
    """Messages with QoS above 0 of one client that are not acknowledged (PUBACK, PUBREC): the Receive Maximum. A client
    that sends more is not read until acknowledgements are written."""
    subscriptions: int = Field(default=1000, ge=1, le=100_000)
    """Subscriptions of a session; the memory of their filters is limited, too."""
    aliases: int = Field(default=100, ge=0, le=65535)
    """Topic aliases of a client, and towards it; 0 disables both."""
    retained: int = Field(default=100_000, ge=0, le=10_000_000)
    """Retained messages; further ones are not retained, and counted. Identities share the last tenth of these and of
    their octets as that of `sessions`."""
    retainedOctets: Size = 256 * 1024 * 1024
    """The memory that they take together, approximately, properties and levels of topics included."""
    connect: Wait = 10.0
    """The time in which CONNECT must be received, and before that for the TLS handshake."""
    keepAlive: Seconds = 1200.0
    """The longest keep alive; announced to clients of MQTT 5.0."""
    logins: int = Field(default=100, ge=1, le=10_000)
    """Logins that wait for the verification of their passwords; beyond it one of the source with most is refused."""


class PersistenceSettings(Settings):
    """
    The database of durable state.

    Nothing that was acknowledged is lost when the process or the machine crashes: messages with QoS 1 and 2 for
    persistent sessions, these sessions with their subscriptions and wills, retained messages, and the identifiers of
    QoS 2 messages that were received. Sessions that end with their connection are not stored, and neither are their
    wills.
    """

    path: FilePath
    """SQLite database on a local disk, created with mode 0600. One process at a time uses it. Files with the suffixes
    `-wal`, `-shm` and `.reserve` (8 MiB reserved for a full disk) are next to it."""


class BrokerPolicySettings(Settings):
    """Which identities and certificates are refused, whatever access rules allow."""

    files: Annotated[Items[PolicyFile], Field(max_length=64)] = ()
    """Files with [deny lists](policy.md#deny-lists) (`SvcDenyList`) and nothing else; `*` stands for any characters of
    a name. Read again when one changes, as a whole: while one file is not valid the lists in force stay. *Together*:
    with a listener with `tls.spiffe`."""


class BrokerSettings(DaemonSettings):
    """The broker."""

    trustDomain: TrustDomainText | None = None
    """The trust domain that the broker's SVID must be of. *Together*: required where a listener has `tls.spiffe` or
    `tls.svid`."""
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    """The SPIFFE Workload API, used where a listener has `tls.spiffe` or `tls.svid`."""
    passwordFile: FilePath | None = None
    """Users and hashes of their passwords, written by [`svc broker passwd`](#users-and-passwords) and read again on
    `SIGHUP`. *Together*: with a listener with `passwords`."""
    startTimeout: Wait = 60.0
    """How long the start waits for the first SVID, and for a disk that does not respond while the database is read.
    After that the process exits with status 1 and the reason."""
    metricsAddr: OptionalAddress = HostPort("", PORT_BROKER_METRICS)
    """`/metrics`; `"0"` or `""` disables."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_BROKER_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables.
    There is no authentication: keep it on loopback."""
    limits: BrokerLimitSettings = Field(default_factory=BrokerLimitSettings)
    """Limits."""
    policy: BrokerPolicySettings = Field(default_factory=BrokerPolicySettings)
    """Deny lists."""
    persistence: PersistenceSettings | None = None
    """Durable state; without it nothing survives a restart, retained messages and sessions included."""
    listeners: Annotated[Items[BrokerListenerSettings], Field(json_schema_extra={"minItems": 1})]
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
        spiffe = any(each.clients == "spiffe" for each in self.listeners)
        if self.trustDomain is None and self.needs_svid:
            raise ValueError("trustDomain, which listeners with tls.spiffe or tls.svid need")
        passwords = any(each.passwords for each in self.listeners)
        if passwords != (self.passwordFile is not None):
            raise ValueError("passwordFile and a listener with passwords: true together")
        if self.policy.files and not spiffe:
            raise ValueError("a listener with tls.spiffe: policy.files refuses identities, and no client has one")
        return self

    @property
    def needs_svid(self) -> bool:
        """Whether a listener presents an SVID."""
        return any(each.tls is not None and each.tls.presents_svid for each in self.listeners)


def _is_loopback(address: HostPort) -> bool:
    if address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False


def changed_rules(old: BrokerSettings, new: BrokerSettings) -> tuple[str, ...]:
    """
    Compare the running configuration with a new one.

    Returns:
        The names of the listeners whose ``acl`` differs.

    Raises:
        BrokerError: another key differs (``restart_needed``); the error names every such key.
    """
    before, after = ({each.name: each for each in settings.listeners} for settings in (old, new))
    keys = [*_changed_keys(old, new, "", "listeners")]
    keys += [f"listeners[{name}]" for name in sorted(before.keys() ^ after.keys())]
    both = [name for name in after if name in before]
    for name in both:
        keys += _changed_keys(before[name], after[name], f"listeners[{name}].", "acl")
    if keys:
        raise BrokerError("restart_needed", keys=", ".join(keys))
    return tuple(name for name in both if before[name].acl != after[name].acl)


def _changed_keys(old: Settings, new: Settings, path: str, excluded: str = "") -> Iterator[str]:
    for name in type(new).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if name == excluded or before == after:
            continue
        if isinstance(before, Settings) and isinstance(after, Settings):
            yield from _changed_keys(before, after, f"{path}{name}.")
        else:
            yield f"{path}{name}"
