"""
``SvcClusterPolicy`` and ``SvcPolicy`` as objects of a cluster: their content, and what is read of one.

The schemas of the custom resources are generated from the models. ``authorization`` is that of policy files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from svc.injection.config import AmountSettings
from svc.injection.ports import LOWEST_LISTEN, MAX_PORTS, InjectedPort
from svc.kube.client import Object
from svc.kube.kinds import CLUSTER_POLICIES, POLICIES, Kind
from svc.policy.rules import AuthorizationPolicy
from svc.policyfiles.document import AuthorizationDocument, PolicyDocument
from svc.policyfiles.selector import PodSelector
from svc.settings import ConfigInvalid, Items, Settings, validate


class InboundPort(Settings):
    """A port of the proxy."""

    port: int = Field(ge=LOWEST_LISTEN, le=65535)
    """Where the proxy listens."""
    targetPort: int = Field(ge=1, le=65535)
    """The port of the application on 127.0.0.1."""
    protocol: Literal["http", "tcp", "mqtt"]
    """What it speaks."""

    def injected(self) -> InjectedPort:
        """The port as the injection has it."""
        return InjectedPort(self.port, self.targetPort, self.protocol)


class ProxyDocument(Settings):
    """What is injected into pods that are made from now on."""

    inbound: Annotated[Items[InboundPort], Field(max_length=MAX_PORTS)] = ()
    """The ports of the proxy, instead of the annotation `svc.internal/ports`, which goes before. Those of a `SvcPolicy`
    go before those of a `SvcClusterPolicy`."""
    notarization: Literal["none", "workload", "logRequest", "signRequest"] | None = None
    """The level that every request and message gets at least; the strongest of all policies counts. It is not for
    `tcp`."""
    requests: AmountSettings | None = None
    """What is reserved for each proxy."""
    limits: AmountSettings | None = None
    """What each proxy may use."""

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        ports = [each.port for each in self.inbound]
        repeated = next((port for port in ports if ports.count(port) > 1), None)
        if repeated is not None:
            raise ValueError(f"inbound with different ports: {repeated} appears twice")
        both = next((each.targetPort for each in self.inbound if each.targetPort in ports), None)
        if both is not None:
            raise ValueError(f"inbound with other ports than those of the application: {both} is both")
        return self


class SvcPolicySpec(Settings):
    """What a policy says."""

    podSelector: PodSelector | None = None
    """The pods that it is about, by their labels when they were made; without it all."""
    authorization: AuthorizationDocument | None = None
    """Who may do what, as in policy files."""
    proxy: ProxyDocument | None = None
    """What is injected into pods that are made from now on."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.authorization is None and self.proxy is None:
            raise ValueError("authorization, or proxy, or both")
        return self


class SvcClusterPolicySpec(SvcPolicySpec):
    """What a policy of the cluster says."""

    namespaceSelector: PodSelector | None = None
    """The namespaces that it is about, by their labels; without it all."""


class _Document(Settings):
    # Of an object, the rest is the API server's.
    model_config = ConfigDict(extra="ignore")


class _ClusterPolicy(_Document):
    spec: SvcClusterPolicySpec


class _NamespacePolicy(_Document):
    spec: SvcPolicySpec


#: The kinds of policies, with the value of the label ``kind`` of the metrics, and what their ``spec`` has.
KINDS: Final[Mapping[str, tuple[Kind, str, type[SvcPolicySpec]]]] = {
    CLUSTER_POLICIES.name: (CLUSTER_POLICIES, "cluster", SvcClusterPolicySpec),
    POLICIES.name: (POLICIES, "namespace", SvcPolicySpec),
}
#: Kind, namespace and name.
Key = tuple[str, str, str]
_ModelT = TypeVar("_ModelT", bound=SvcPolicySpec)


@dataclass(frozen=True, eq=False)
class PolicyResource:
    """
    A policy that is valid.

    Attributes:
        key: names it.
        spec: its content.
        document: as proxies read it; None where it says nothing on who may do what.
        policy: the same as decisions use it.
    """

    key: Key
    spec: SvcPolicySpec
    document: Mapping[str, Any] | None = field(repr=False)
    policy: AuthorizationPolicy | None = field(repr=False)

    def __str__(self) -> str:
        return describe(self.key)

    def selects_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it is about a namespace."""
        if not isinstance(self.spec, SvcClusterPolicySpec):
            return self.key[1] == name
        selector = self.spec.namespaceSelector
        return selector is None or selector.matches(labels)

    def selects_pod(self, labels: Mapping[str, str]) -> bool:
        """Whether it is about a pod of such a namespace."""
        return self.spec.podSelector is None or self.spec.podSelector.matches(labels)


def describe(key: Key) -> str:
    """Name a policy for people."""
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def key_of(found: Object) -> Key:
    """Return what names an object."""
    metadata = found["metadata"]
    return found["kind"], metadata.get("namespace") or "", metadata["name"]


def read_policy(found: Object) -> PolicyResource:
    """
    Read an object of the API server.

    Raises:
        ConfigInvalid: with every defect; a key that is not known is one.
    """
    key = key_of(found)
    kind, namespace, name = key
    spec: SvcPolicySpec = validate(found, _model(kind), describe(key)).spec
    if spec.authorization is None:
        return PolicyResource(key, spec, None, None)
    given = found["spec"]
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    document = {
        "apiVersion": found["apiVersion"],
        "kind": kind,
        "metadata": metadata,
        "spec": {part: given[part] for part in ("podSelector", "authorization") if given.get(part) is not None},
    }
    return PolicyResource(key, spec, document, validate(document, PolicyDocument, describe(key)).policy())


def _model(kind: str) -> type[_ClusterPolicy | _NamespacePolicy]:
    return _ClusterPolicy if kind == CLUSTER_POLICIES.name else _NamespacePolicy


def defects(error: ConfigInvalid) -> str:
    """Return all defects in one line."""
    return "; ".join(str(each) for each in error.problems)
