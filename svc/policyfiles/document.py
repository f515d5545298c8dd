"""
Policies as documents: the ``authorization`` of ``SvcClusterPolicy`` and ``SvcPolicy``, alike in files and in a cluster.

Owns the keys, their limits and their translation into rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from svc.errors import SvcError
from svc.identity import SpiffeID, SpiffeIdMalformed, TrustDomain
from svc.identity.matchers import parse_matcher
from svc.policy.attributes import SecurityLevel, parse_compartment
from svc.policy.denylist import DenyList, plain_issuer
from svc.policy.mqtt import ClientIdPattern, parse_topic_filter
from svc.policy.paths import HostPattern, PathPattern
from svc.policy.rules import (
    Action,
    AuthorizationPolicy,
    MqttAction,
    MqttTarget,
    Patterns,
    Rule,
    RuleCondition,
    RuleTarget,
    Source,
    TopicFilters,
    Values,
)
from svc.policyfiles.selector import PodSelector
from svc.process.values import AlpnName, ListenerName, MatcherText, TrustDomainText
from svc.settings import Items, Settings, text_format

API_VERSION: Final = "svc.internal/v1alpha1"
MAX_RULES: Final = 128
MAX_ENTRIES: Final = 64
MAX_VALUES: Final = 1024
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_DNS_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
#: The proxy accepts no method in lower case.
_METHOD: Final = re.compile(r"[A-Z][A-Z-]{0,63}\Z")
_ASKED: Final = ("none", "workload", "logRequest", "signRequest")

#: Ranks of policies that allow (:attr:`svc.policy.rules.AuthorizationPolicy.rank`): those of the cluster, documents of
#: the kind ``SvcClusterPolicy`` that a namespace has written for itself, and ``SvcPolicy``.
CLUSTER_RANK: Final = 0
LOCAL_RANK: Final = 1
NAMESPACE_RANK: Final = 2

T = TypeVar("T")


def reads(parse: Callable[[str], object]) -> AfterValidator:
    """A validator of texts that a parser reads; its error says what was expected."""

    def validate(text: str) -> str:
        try:
            parse(text)
        except SvcError as error:
            raise ValueError(str(error.evidence["expected"])) from error
        return text

    return AfterValidator(validate)


def _fits(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def validate(text: str) -> str:
        if not pattern.match(text):
            raise ValueError(expected)
        return text

    return AfterValidator(validate)


def _workload(text: str) -> str:
    try:
        path = SpiffeID.parse(text).path
    except SpiffeIdMalformed:
        path = ""
    if not path:
        raise ValueError("the SPIFFE ID of a workload, such as spiffe://prod.example.org/ns/pay/sa/api")
    return text


def _issuer(text: str) -> str:
    if not 1 <= len(text) <= 1024:
        raise ValueError("a distinguished name of 1 to 1024 characters")
    try:
        plain_issuer(text)
    except ValueError as error:
        raise ValueError("a distinguished name (RFC 4514) such as O=SPIRE,C=US") from error
    return text


_Namespace = Annotated[
    str,
    _fits(_DNS_LABEL, "the name of a namespace: at most 63 of a-z, 0-9 and '-'"),
    text_format("namespace", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
]
_Name = Annotated[
    str,
    _fits(_DNS_NAME, "a name of at most 253 of a-z, 0-9, '.' and '-'"),
    text_format("name", "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"),
]
_RuleName = Annotated[str, Field(min_length=1, max_length=63)]
WorkloadID = Annotated[
    str,
    AfterValidator(_workload),
    text_format("SPIFFE ID", r"^spiffe://[a-z0-9._-]{1,255}(/[A-Za-z0-9._-]+)+$"),
]
Level = Annotated[str, reads(SecurityLevel.parse), text_format("level", "^[A-Za-z]{2,3}:([UuCcSs]|[Tt][Ss])$")]
Compartment = Annotated[str, reads(parse_compartment), text_format("name", "^[A-Za-z0-9._-]{1,63}$")]
_Host = Annotated[
    str, reads(HostPattern.parse), text_format("host", r"^(\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?$|^\[[0-9a-f:.]+\]$")
]
_Path = Annotated[str, reads(PathPattern.parse), text_format("path", "^/[^?#%;]*$")]
_Method = Annotated[
    str,
    _fits(_METHOD, "a method such as GET, in capitals"),
    text_format("method", "^[A-Z][A-Z-]{0,63}$"),
]
TopicFilter = Annotated[str, reads(parse_topic_filter), text_format("topic filter", "^.+$")]
_ClientID = Annotated[str, reads(ClientIdPattern.parse), text_format("client identifier", "^[^*]*[*]?[^*]*$")]
_Sha256 = Annotated[
    str,
    _fits(re.compile(r"(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}\Z"), "64 hexadecimal digits"),
    text_format("SHA-256", "^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$"),
]
_Issuer = Annotated[str, AfterValidator(_issuer), text_format("distinguished name", "^.{1,1024}$")]
_Serial = Annotated[
    str,
    _fits(re.compile(r"[0-9A-Fa-f]{1,40}\Z"), "1 to 40 hexadecimal digits"),
    text_format("serial number", "^[0-9A-Fa-f]{1,40}$"),
]
_StatementID = Annotated[
    str,
    _fits(re.compile(r"[A-Za-z0-9_-]{43}\Z"), "the identifier of a workload statement: 43 characters of base64url"),
    text_format("identifier", "^[A-Za-z0-9_-]{43}$"),
]
Port = Annotated[int, Field(ge=1, le=65535)]
_Asked = Literal["none", "workload", "logRequest", "signRequest"]
_RecordedLevel = Literal["workload", "logRequest", "signRequest"]

_Values = Annotated[Items[T], Field(max_length=MAX_VALUES)]


class SourceDocument(Settings):
    """Clients: every key that is present must hold, by one of its values."""

    spiffeIDs: _Values[MatcherText] = ()
    """SPIFFE IDs, or patterns `spiffe://td/path/*` of all below a path."""
    notSpiffeIDs: _Values[MatcherText] = ()
    """The same, excluded."""
    trustDomains: _Values[TrustDomainText] = ()
    """Trust domains."""
    notTrustDomains: _Values[TrustDomainText] = ()
    """The same, excluded."""
    namespaces: _Values[_Namespace] = ()
    """Namespaces, as the templates of the configuration read them from SPIFFE IDs."""
    notNamespaces: _Values[_Namespace] = ()
    """The same, excluded."""
    serviceAccounts: _Values[_Name] = ()
    """Service accounts, read in the same way."""
    notServiceAccounts: _Values[_Name] = ()
    """The same, excluded."""
    levels: _Values[Level] = ()
    """Security levels: country and sensitivity, such as `DE:S`."""
    notLevels: _Values[Level] = ()
    """The same, excluded."""
    compartments: _Values[Compartment] = ()
    """Compartments."""
    notCompartments: _Values[Compartment] = ()
    """The same, excluded."""
    sameCompartment: bool = False
    """Clients of the compartment of the workload behind the proxy."""
    dominates: bool = False
    """Clients whose level dominates that of the workload: the same country, at least its sensitivity
    (U < C < S < TS)."""

    def source(self) -> Source:
        """The entry as a rule has it."""
        return Source(
            tuple(parse_matcher(text) for text in self.spiffeIDs),
            tuple(parse_matcher(text) for text in self.notSpiffeIDs),
            _values(self.trustDomains, self.notTrustDomains, TrustDomain.parse),
            _values(self.namespaces, self.notNamespaces),
            _values(self.serviceAccounts, self.notServiceAccounts),
            _values(self.levels, self.notLevels, SecurityLevel.parse),
            _values(self.compartments, self.notCompartments),
            self.sameCompartment,
            self.dominates,
        )


class TargetDocument(Settings):
    """What is accessed: every key that is present must hold, by one of its values."""

    listeners: _Values[ListenerName] = ()
    """Listeners of the proxy, by name."""
    notListeners: _Values[ListenerName] = ()
    """The same, excluded."""
    ports: _Values[Port] = ()
    """Ports of listeners."""
    notPorts: _Values[Port] = ()
    """The same, excluded."""
    snis: _Values[_Host] = ()
    """Server names that the client sends in the TLS handshake; `*.example.org` for all below one."""
    notSnis: _Values[_Host] = ()
    """The same, excluded."""
    alpns: _Values[AlpnName] = ()
    """Application protocols agreed on in the TLS handshake (ALPN), such as `h2`."""
    notAlpns: _Values[AlpnName] = ()
    """The same, excluded."""
    hosts: _Values[_Host] = ()
    """Hosts of the request, without port."""
    notHosts: _Values[_Host] = ()
    """The same, excluded."""
    methods: _Values[_Method] = ()
    """HTTP methods."""
    notMethods: _Values[_Method] = ()
    """The same, excluded."""
    paths: _Values[_Path] = ()
    """Paths without query: `/a/b`, `/a/*` for all below `/a/`, or templates such as `/users/{id}`, in which a
    placeholder is one segment."""
    notPaths: _Values[_Path] = ()
    """The same, excluded."""
    mqttActions: _Values[MqttAction] = ()
    """What MQTT clients do. *Together*: `Connect` without topics, and all keys of MQTT without those of HTTP."""
    mqttTopics: _Values[TopicFilter] = ()
    """MQTT topic filters: a PUBLISH is matched by its topic name, see [MQTT](#mqtt) for subscriptions."""
    notMqttTopics: _Values[TopicFilter] = ()
    """The same, excluded. *Together*: with `mqttTopics` or `mqttActions`."""
    mqttClientIDs: _Values[_ClientID] = ()
    """MQTT client identifiers; one `*` stands for any characters."""

    @model_validator(mode="after")
    def _of_one_protocol(self) -> Self:
        http = self.hosts or self.notHosts or self.methods or self.notMethods or self.paths or self.notPaths
        topics = self.mqttTopics or self.notMqttTopics
        if http and (topics or self.mqttActions or self.mqttClientIDs):
            raise ValueError("hosts, methods and paths of HTTP in another entry than keys of MQTT: nothing has both")
        if topics and "Connect" in self.mqttActions:
            raise ValueError("the action Connect in another entry than topics: it has none")
        if self.notMqttTopics and not (self.mqttTopics or self.mqttActions):
            raise ValueError("notMqttTopics together with mqttTopics or mqttActions")
        return self

    def target(self) -> RuleTarget:
        """The entry as a rule has it."""
        return RuleTarget(
            _values(self.listeners, self.notListeners),
            _values(self.ports, self.notPorts),
            _patterns(self.snis, self.notSnis, HostPattern.parse),
            _values(self.alpns, self.notAlpns),
            _patterns(self.hosts, self.notHosts, HostPattern.parse),
            _values(self.methods, self.notMethods),
            _patterns(self.paths, self.notPaths, PathPattern.parse),
            MqttTarget(
                _values(self.mqttActions, ()),
                TopicFilters(self.mqttTopics, self.notMqttTopics),
                _patterns(self.mqttClientIDs, (), ClientIdPattern.parse),
            )
            if self.mqttActions or self.mqttTopics or self.mqttClientIDs
            else None,
        )


class ConditionDocument(Settings):
    """Conditions: every key that is present must hold."""

    postQuantum: bool | None = None
    """Whether the key agreement of the connection is post-quantum."""
    asked: _Values[_Asked] = ()
    """Notarization levels that the client asks for."""
    notAsked: _Values[_Asked] = ()
    """The same, excluded."""

    def condition(self) -> RuleCondition:
        """The entry as a rule has it."""
        return RuleCondition(self.postQuantum, _values(self.asked, self.notAsked))


class NotarizationDocument(Settings):
    """The notarization of what a rule allows."""

    minimum: _RecordedLevel | None = None
    """The level that it gets at least."""
    maximum: _RecordedLevel | None = None
    """The strongest level that it gets."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.minimum and self.maximum and _ASKED.index(self.minimum) > _ASKED.index(self.maximum):
            raise ValueError("a minimum that is not above the maximum")
        return self


_Entries = Annotated[Items[T], Field(max_length=MAX_ENTRIES)]


class RuleDocument(Settings):
    """One rule: one entry of each list that is present must hold. The rule `{}` matches every request."""

    name: _RuleName | None = None
    """Names the rule in decisions; else `rule-` and its number, from 1."""
    from_: _Entries[SourceDocument] = Field(default=(), alias="from")
    """Clients."""
    to: _Entries[TargetDocument] = ()
    """What is accessed."""
    when: _Entries[ConditionDocument] = ()
    """Conditions."""
    notarization: NotarizationDocument | None = None
    """The notarization of what it allows. *Together*: with `action: Allow`."""


class AuthorizationDocument(Settings):
    """What a policy allows, denies or audits."""

    mode: Literal["Enforce", "DryRun"] = "Enforce"
    """`DryRun` decides nothing: what it would change is counted and logged."""
    action: Literal["Allow", "Deny", "Audit"] = "Allow"
    """Deny comes before Allow; Audit decides nothing, and what it matches is logged."""
    rules: Annotated[Items[RuleDocument], Field(max_length=MAX_RULES)] = ()
    """Rules; without any the policy matches nothing."""

    @model_validator(mode="after")
    def _rules_fit(self) -> Self:
        names = [rule.name for rule in self.rules if rule.name is not None]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"rules with different names: {repeated!r} appears twice")
        if self.action != "Allow" and any(rule.notarization for rule in self.rules):
            raise ValueError("notarization in rules of the action Allow only")
        return self


class MetadataDocument(Settings):
    """The name of a policy."""

    name: _Name
    """Names the policy in decisions."""
    namespace: _Namespace | None = None
    """Of a `SvcPolicy`."""


class SpecDocument(Settings):
    """What a policy is about; the other keys of the resources are for a cluster, and not here."""

    podSelector: PodSelector | None = None
    """The pods that it is about, by their labels; without it all. A proxy leaves out policies that are not about its
    pod, see [pods](policy.md#pods)."""
    authorization: AuthorizationDocument
    """Who may do what."""


class CertificateDocument(Settings):
    """One certificate, by its SHA-256 or by issuer and serial number."""

    sha256: _Sha256 | None = None
    """SHA-256 of the DER octets, in hexadecimal, with colons or without."""
    issuer: _Issuer | None = None
    """The distinguished name of the issuer (RFC 4514), such as `O=SPIRE,C=US`. *Together*: with `serial`."""
    serial: _Serial | None = None
    """The serial number, in hexadecimal without colons; in quotes, since digits alone are a number."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        by_serial = (self.issuer is not None) + (self.serial is not None)
        if by_serial == 1 or (self.sha256 is not None) == bool(by_serial):
            raise ValueError("either sha256, or issuer and serial")
        return self


class DenyListSpec(Settings):
    """What is refused, whatever policies allow; signing certificates with all below them."""

    spiffeIDs: _Values[MatcherText] = ()
    """SPIFFE IDs or patterns."""
    certificates: _Values[CertificateDocument] = ()
    """Certificates of a peer's chain, without the root."""
    workloadStatements: _Values[_StatementID] = ()
    """Identifiers of workload statements (`Svc-Workload-ID`), for peers whose statement an outbound listener
    verifies."""


class DenyListDocument(Settings):
    """One deny list."""

    apiVersion: Literal["svc.internal/v1alpha1"]
    """The version of the format."""
    kind: Literal["SvcDenyList"]
    """What it is."""
    metadata: MetadataDocument
    """The name."""
    spec: DenyListSpec
    """What it refuses."""

    def deny_list(self) -> DenyList:
        """The list as decisions use it."""
        given = self.spec
        return DenyList(
            self.metadata.name,
            tuple(parse_matcher(text) for text in given.spiffeIDs),
            frozenset(bytes.fromhex(each.sha256.replace(":", "")) for each in given.certificates if each.sha256),
            frozenset(
                (plain_issuer(each.issuer), int(each.serial, 16))
                for each in given.certificates
                if each.issuer and each.serial
            ),
            frozenset(given.workloadStatements),
        )


class PolicyDocument(Settings):
    """One policy."""

    apiVersion: Literal["svc.internal/v1alpha1"]
    """The version of the format."""
    kind: Literal["SvcClusterPolicy", "SvcPolicy"]
    """`SvcPolicy` belongs to a namespace and only narrows what policies of the cluster allow, where there are any."""
    metadata: MetadataDocument
    """The name."""
    spec: SpecDocument
    """What it says."""

    @model_validator(mode="after")
    def _namespace_fits(self) -> Self:
        if (self.kind == "SvcPolicy") != (self.metadata.namespace is not None):
            raise ValueError("metadata.namespace for the kind SvcPolicy, and for no other")
        return self

    def policy(self, *, local: bool = False) -> AuthorizationPolicy:
        """
        Return the policy as decisions use it.

        Args:
            local: whether a namespace has written it for itself, so that it only narrows what the cluster allows.
        """
        given = self.spec.authorization
        return AuthorizationPolicy(
            self.metadata.name,
            Action(given.action),
            tuple(_rule(rule, number) for number, rule in enumerate(given.rules, 1)),
            self.metadata.namespace or "",
            given.mode == "Enforce",
            NAMESPACE_RANK if self.metadata.namespace else LOCAL_RANK if local else CLUSTER_RANK,
        )


def _rule(rule: RuleDocument, number: int) -> Rule:
    notarization = rule.notarization or NotarizationDocument()
    return Rule(
        rule.name or f"rule-{number}",
        tuple(each.source() for each in rule.from_),
        tuple(each.target() for each in rule.to),
        tuple(each.condition() for each in rule.when),
        notarization.minimum,
        notarization.maximum,
    )


def _same(value: Any) -> Any:
    return value


def _values(wanted: Iterable[Any], excluded: Iterable[Any], parse: Callable[[Any], Hashable] = _same) -> Values:
    return Values(frozenset(map(parse, wanted)), frozenset(map(parse, excluded)))


def _patterns(
    wanted: Iterable[str],
    excluded: Iterable[str],
    parse: Callable[[str], PathPattern | HostPattern | ClientIdPattern],
) -> Patterns:
    return Patterns(tuple(map(parse, wanted)), tuple(map(parse, excluded)))
