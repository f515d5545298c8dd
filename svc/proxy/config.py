"""
The configuration of the proxy: every key, its default, its bounds, and the rules between keys.

Knows YAML models only; what runs is built from it elsewhere. A key of a capability that does not exist is an error.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from svc.identity import TrustDomain
from svc.identity.matchers import parse_matcher
from svc.naming import DEFAULT_SPIFFE_SOCKET, PORT_PROXY_ADMIN, PORT_PROXY_METRICS
from svc.notary.facts import DEFAULT_ALLOWED, Container, FactsInvalid, WorkloadFacts
from svc.settings import Address, Duration, HostPort, Items, Settings, Size

LevelName = Literal["none", "workload", "logRequest", "signRequest"]
#: Two heads of this size, every octet outside ASCII, still fit the 256 KiB of an envelope.
MAX_RECORDED_HEAD = 40 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_RANKS = {"none": 0, "workload": 1, "logRequest": 2, "signRequest": 3}


def _trust_domain(text: str) -> str:
    _parsed(TrustDomain.parse, text, "the name of a trust domain, such as prod.example.org")
    return text


def _matcher(text: str) -> str:
    _parsed(parse_matcher, text, "a SPIFFE ID, or spiffe://domain/path/* or spiffe://domain/*")
    return text


def _parsed(parse: object, text: str, expected: str) -> None:
    try:
        parse(text)  # type: ignore[operator]
    except Exception as error:
        raise ValueError(expected) from error


def _socket(text: str) -> str:
    if not text.startswith("unix:///") or len(text) < 9:
        raise ValueError("unix:/// and the absolute path of a socket")
    return text


def _upstream(value: object) -> HostPort | str:
    if isinstance(value, str) and value.startswith("unix:"):
        return _socket(value)
    address = HostPort.parse(value)
    if not address.host or not address.port:
        raise ValueError("an address host:port, or unix:/// and the absolute path of a socket")
    return address


def _optional_address(value: object) -> HostPort | None:
    """``0`` and the empty text disable, as everywhere in the platform."""
    if value in ("", "0", 0) and not isinstance(value, bool | float):
        return None
    return HostPort.parse(value)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("a duration above 0s")
    return value


def _pq_issuer(value: str) -> str:
    _upstream(value)
    return value


def _name(value: str) -> str:
    if _NAME.match(value) is None:
        raise ValueError("a name of at most 63 letters, digits, dots, hyphens and underscores, no mark in front")
    return value


def _not_empty(value: tuple[ListenerSettings, ...]) -> tuple[ListenerSettings, ...]:
    if not value:
        raise ValueError("at least one listener")
    return value


TrustDomainText = Annotated[str, AfterValidator(_trust_domain)]
MatcherText = Annotated[str, AfterValidator(_matcher)]
SocketText = Annotated[str, AfterValidator(_socket)]
Upstream = Annotated[HostPort | str, BeforeValidator(_upstream)]
OptionalAddress = Annotated[HostPort | None, BeforeValidator(_optional_address)]
Wait = Annotated[Duration, AfterValidator(_positive)]
PqIssuerText = Annotated[str, AfterValidator(_pq_issuer)]


class NotarySettings(Settings):
    """Where records go, how long they stay, and what signs them."""

    path: str = "/var/lib/svc/notary.db"
    retention: Duration = 90 * 86400.0
    profile: Literal["hybrid", "pq", "classical", "cnsa2"] = "hybrid"
    pqIssuer: PqIssuerText | None = None
    pqIssuerID: MatcherText | None = None
    pqBundle: str | None = None
    redactHeaders: Items[str] = ()
    redactQuery: bool = False
    readers: Items[MatcherText] = ()
    receiptsPerSecond: int = Field(default=200, ge=1, le=100_000)
    receiptsBurst: int = Field(default=400, ge=1, le=1_000_000)
    queue: int = Field(default=1024, ge=1, le=65536)

    @model_validator(mode="after")
    def _issuer_where_needed(self) -> Self:
        if self.profile != "classical" and self.pqIssuer is None:
            raise ValueError(
                f"pqIssuer, which profile {self.profile} needs (unix:///path of svc-authority, or host:port),"
                " or profile: classical"
            )
        if self.pqIssuer is not None and not self.pqIssuer.startswith("unix:") and self.pqIssuerID is None:
            raise ValueError("pqIssuerID, the SPIFFE ID of an issuer that is reached by host:port")
        return self


class ContainerSettings(Settings):
    """One container of the workload's pod."""

    name: str
    image: str
    imageDigest: str | None = None
    init: bool = False


class WorkloadSettings(Settings):
    """What the statement says of the workload: a downward-API folder, or explicit values."""

    podInfo: str | None = None
    namespace: str | None = None
    serviceAccount: str | None = None
    podName: str | None = None
    podUID: str | None = None
    node: str | None = None
    containers: Items[ContainerSettings] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    allowLabels: Items[str] = ()
    allowAnnotations: Items[str] = ()

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        explicit = self.model_fields_set - {"podInfo", "allowLabels", "allowAnnotations"}
        if self.podInfo is not None and explicit:
            raise ValueError(f"either podInfo or explicit values, not both ({', '.join(sorted(explicit))})")
        try:
            self.facts("localhost")
        except FactsInvalid as error:
            raise ValueError(f"facts that a statement can tell: {error}") from error
        return self

    @property
    def allowed(self) -> tuple[str, ...]:
        """The names of labels and annotations that may leave."""
        return (*DEFAULT_ALLOWED, *self.allowLabels, *self.allowAnnotations)

    def facts(self, host_name: str) -> WorkloadFacts:
        """
        Take the explicit values.

        Args:
            host_name: stands in for an absent pod name.

        Returns:
            The facts.

        Raises:
            FactsInvalid: a value is not acceptable.
        """
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


class PolicySettings(Settings):
    """Who is admitted where no rule speaks."""

    default: Literal["allow", "deny"] = "deny"


class LimitSettings(Settings):
    """What one listener's connections and messages may use."""

    connections: int = Field(default=4096, ge=1, le=1_000_000)
    handshakes: int = Field(default=256, ge=1, le=65536)
    head: Annotated[Size, Field(ge=1024, le=2**20)] = 32 * 1024
    fields: int = Field(default=100, ge=8, le=1000)
    body: Size | None = None
    idleUpstream: int = Field(default=64, ge=0, le=65536)


class TimeoutSettings(Settings):
    """How long one listener waits for what."""

    handshake: Wait = 10.0
    header: Wait = 10.0
    idle: Wait = 60.0
    idleUpstream: Wait = 30.0
    connect: Wait = 5.0
    response: Wait = 60.0
    stream: Wait = 300.0
    exchange: Wait = 3600.0


class ListenerSettings(Settings):
    """One listener."""

    name: Annotated[str, AfterValidator(_name)]
    protocol: Literal["http"]
    direction: Literal["inbound", "outbound"]
    listen: Address
    upstream: Upstream
    peer: MatcherText | None = None
    keyExchange: Literal["default", "require"] = "default"
    proxyProtocol: Literal["off", "v2"] = "off"
    notarization: LevelName = "none"
    maxNotarization: LevelName = "signRequest"
    limits: LimitSettings = LimitSettings()
    timeouts: TimeoutSettings = TimeoutSettings()

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
            if self.model_fields_set & {"notarization", "maxNotarization"}:
                raise ValueError("no notarization here: the peer of an outbound listener notarizes")
        elif self.peer is not None:
            raise ValueError("no peer here: it belongs to outbound listeners, the policy admits inbound peers")
        if _RANKS[self.notarization] > _RANKS[self.maxNotarization]:
            raise ValueError(f"a maxNotarization of at least {self.notarization}")
        if _RANKS[self.maxNotarization] >= _RANKS["logRequest"] and self.limits.head > MAX_RECORDED_HEAD:
            raise ValueError(
                f"limits.head of at most {MAX_RECORDED_HEAD // 1024}KiB, since a receipt holds both heads"
                " (or a maxNotarization of workload)"
            )
        return self


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ProxySettings(Settings):
    """The whole file."""

    trustDomain: TrustDomainText
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    spiffeHint: str | None = None
    startTimeout: Wait = 60.0
    drainTimeout: Duration = 30.0
    metricsAddr: OptionalAddress = HostPort("", PORT_PROXY_METRICS)
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_PROXY_ADMIN)
    accessLog: Literal["off", "on"] = "off"
    notary: NotarySettings = Field(default_factory=lambda: NotarySettings(pqIssuer="unix:///run/svc/pq.sock"))
    workload: WorkloadSettings = WorkloadSettings()
    policy: PolicySettings = PolicySettings()
    listeners: Annotated[Items[ListenerSettings], AfterValidator(_not_empty)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names: set[str] = set()
        addresses: set[str] = set()
        for listener in self.listeners:
            if listener.name in names:
                raise ValueError(f"listeners with distinct names; {listener.name} stands twice")
            names.add(listener.name)
            address = str(listener.listen)
            if listener.listen.port and address in addresses:
                raise ValueError(f"listeners with distinct addresses; {address} stands twice")
            addresses.add(address)
        return self
