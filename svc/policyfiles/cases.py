"""
Questions to policies, and the decision on each with its explanation; tables of expected decisions.

Decides with the code that the proxy uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from svc.identity import SpiffeID
from svc.policy.attributes import Attributes, SecurityLevel
from svc.policy.engine import ConnectionPolicy, Decision, MatchedRule
from svc.policy.paths import RequestAmbiguous, plain_host, plain_path
from svc.policy.rules import ConnectionFacts, MqttAction, RequestFacts
from svc.policyfiles.document import Compartment, Level, MetadataDocument, Port, WorkloadID
from svc.policyfiles.settings import Policies
from svc.settings import Items, Settings
from svc.wire.mqtt import filter_defect, name_defect, split_shared


class Question(Settings):
    """One request, or one MQTT packet, of one client."""

    as_: WorkloadID = Field(alias="as")
    """The SPIFFE ID of the client."""
    level: Level | None = None
    """Its security level, instead of the one that the configuration knows."""
    compartment: Compartment | None = None
    """Its compartment, in the same way."""
    own: WorkloadID | None = None
    """The SPIFFE ID of the workload behind the proxy, for `sameCompartment` and `dominates`."""
    listener: str = ""
    """The listener."""
    port: Port = 443
    """Its port."""
    sni: str = ""
    """The server name in the TLS handshake."""
    alpn: str = ""
    """The application protocol agreed on in the TLS handshake."""
    postQuantum: bool = True
    """Whether the key agreement is post-quantum."""
    method: str | None = None
    """The HTTP method; absent for a connection without requests."""
    path: str | None = None
    """The path without query."""
    host: str | None = None
    """The host."""
    asked: Literal["none", "workload", "logRequest", "signRequest"] = "none"
    """The notarization level that the client asks for."""
    mqttAction: MqttAction | None = None
    """What an MQTT client does."""
    topic: str | None = None
    """The topic name of `Publish`, or the topic filter of `Subscribe`. *Together*: with `mqttAction`."""
    clientID: str | None = None
    """The MQTT client identifier. *Together*: with `mqttAction`."""

    @model_validator(mode="after")
    def _of_one_protocol(self) -> Self:
        of_http = self.method is not None or self.path is not None or self.host is not None
        if self.mqttAction is None and (self.topic is not None or self.clientID is not None):
            raise ValueError("the MQTT action of a topic or a client identifier")
        if self.mqttAction is not None and of_http:
            raise ValueError("either an MQTT action, or method, path and host")
        if self.mqttAction == "Connect" and self.topic is not None:
            raise ValueError("no topic for Connect")
        if self.mqttAction == "Publish" and name_defect(self.topic or ""):
            raise ValueError("a topic name for Publish, without wildcards")
        if self.mqttAction == "Subscribe" and filter_defect(self.topic or ""):
            raise ValueError("a topic filter for Subscribe, such as devices/+/state or devices/#")
        return self

    def connection(self, policies: Policies) -> ConnectionFacts:
        """What the policies know of the connection."""
        identity = SpiffeID.parse(self.as_)
        known = policies.attributes.attributes(identity)
        level = known.level if self.level is None else SecurityLevel.parse(self.level)
        compartment = known.compartment if self.compartment is None else self.compartment
        own = Attributes() if self.own is None else policies.attributes.attributes(SpiffeID.parse(self.own))
        return ConnectionFacts(
            self.listener,
            self.port,
            identity,
            Attributes(known.namespace, known.service_account, level, compartment),
            own,
            self.postQuantum,
            self.sni.lower(),
            self.alpn,
        )

    def request(self, connection: ConnectionPolicy) -> RequestFacts:
        """What they know of the request; raises RequestAmbiguous where they look at what is ambiguous."""
        if self.mqttAction is not None:
            shared = split_shared(self.topic) if self.mqttAction == "Subscribe" and self.topic else None
            topic = shared.filter if shared else self.topic
            return RequestFacts(action=self.mqttAction, topic=topic, client_id=self.clientID)
        if self.method is None and self.path is None and self.host is None:
            return RequestFacts()
        path: str | None
        host: str | None
        try:
            path = plain_path((self.path or "/").encode("utf-8", "surrogateescape"))
        except RequestAmbiguous:
            if connection.depends_on_path:
                raise
            path = None
        try:
            host = plain_host(self.host) if self.host else ""
        except RequestAmbiguous:
            if connection.depends_on_host:
                raise
            host = None
        return RequestFacts(self.method or "GET", path, host, self.asked)


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    A decision, and what led to it.

    Attributes:
        decision: None where path or host have no single reading, or the identity is on a deny list.
        refused: why, in that case.
        dry_run: the decision with the policies in dry run enforced, where there are any.
        audited: the rules of Audit policies that match.
    """

    decision: Decision | None
    refused: str = ""
    dry_run: Decision | None = None
    audited: Sequence[MatchedRule] = ()

    @property
    def allowed(self) -> bool:
        """Whether the request is permitted."""
        return self.decision is not None and self.decision.allowed


def explain(policies: Policies, question: Question) -> Explanation:
    """Decide on a question. Certificates and statements of deny lists are not known here."""
    facts = question.connection(policies)
    listed = policies.listed(facts.identity)
    if listed is not None:
        return Explanation(None, f"{listed.rule} is on the deny list {listed.policy}")
    connection = policies.rules.connection(facts)
    try:
        request = question.request(connection)
    except RequestAmbiguous as error:
        return Explanation(None, str(error))
    return Explanation(connection.decide(request), "", connection.dry_run(request), tuple(connection.audited(request)))


class Case(Question):
    """A question with the expected decision."""

    expect: Literal["allow", "deny"]
    """The decision."""
    rule: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The rule that makes it; `default-deny` where none does."""


class CasesSpec(Settings):
    """The cases."""

    cases: Annotated[Items[Case], Field(max_length=16_384)]
    """Each with its expected decision."""


class CasesDocument(Settings):
    """A table of expected decisions."""

    apiVersion: Literal["svc.internal/v1alpha1"]
    """The version of the format."""
    kind: Literal["SvcPolicyTest"]
    """What it is."""
    metadata: MetadataDocument
    """The name."""
    spec: CasesSpec
    """The table."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case, its number from 1, and what was decided; ``failed`` says what differs, empty where nothing does."""

    number: int
    case: Case
    explanation: Explanation
    failed: str


def run_cases(policies: Policies, cases: Sequence[Case]) -> list[CaseResult]:
    """Decide on each case and compare."""
    return [_compared(number, case, explain(policies, case)) for number, case in enumerate(cases, 1)]


def _compared(number: int, case: Case, explanation: Explanation) -> CaseResult:
    decided = "allow" if explanation.allowed else "deny"
    rules = [each.rule for each in explanation.decision.matched] if explanation.decision else []
    by, failed = ", ".join(rules) or explanation.refused, ""
    if decided != case.expect:
        failed = f"expected {case.expect}, decided {decided} by {by}"
    elif case.rule is not None and case.rule not in rules:
        failed = f"expected the rule {case.rule}, decided by {by}"
    return CaseResult(number, case, explanation, failed)
