"""The configuration section ``policy``, and the policies that it leads to."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field

from svc.identity import Matcher, SpiffeID, SvidEvidence, TrustDomain
from svc.identity.matchers import MemberOf, parse_matcher
from svc.policy.attributes import Attributes, AttributeSource, IdTemplate, SecurityLevel
from svc.policy.denylist import DenyList
from svc.policy.engine import ConnectionPolicy, Denied, PolicySet, cached
from svc.policy.rules import Action, AuthorizationPolicy, ConnectionFacts, Rule, Source
from svc.policyfiles.document import Compartment, DenyListDocument, Level, WorkloadID, reads
from svc.policyfiles.files import (
    PodLabels,
    PolicyFiles,
    own_policies,
    read_policies,
    with_own,
)
from svc.process.values import MatcherText, TrustDomainText
from svc.settings import Items, Settings, text_format

#: The policy that `policy.default` and `policy.allow` make, and the rule of the former.
CONFIGURATION: Final = "configuration"
DEFAULT_ALLOW: Final = "default allow"


def _absolute(pattern: str) -> str:
    if not pattern.startswith("/"):
        raise ValueError("the absolute path of a file, or a pattern such as /etc/svc/policy/*.yaml")
    return pattern


#: The path of a policy file, or a pattern of paths.
PolicyFile = Annotated[str, AfterValidator(_absolute), text_format("path or pattern", "^/.+$")]
_Template = Annotated[
    str, reads(IdTemplate.parse), text_format("template", r"^spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+|/\{[A-Za-z]+\})+$")
]


class AttributeSettings(Settings):
    """What is known of one workload."""

    spiffeID: WorkloadID
    """Its SPIFFE ID."""
    level: Level | None = None
    """Its security level: country and sensitivity, such as `DE:S`."""
    compartment: Compartment | None = None
    """Its compartment."""


class PolicySettings(Settings):
    """Which identities may send which requests to inbound listeners."""

    default: Literal["allow", "deny"] = "deny"
    """The identities admitted without an entry in `allow` or a rule in `files`: none, or every verified identity of
    `trustDomain`, which is logged as a warning. Identities of federated trust domains are admitted only by `allow` and
    rules."""
    allow: Annotated[Items[MatcherText], Field(max_length=1024)] = ()
    """Further identities that are admitted, of this trust domain or of federated ones. Peers of a trust domain without
    a bundle from the Workload API are refused in the handshake, whatever is listed here."""
    files: Annotated[Items[PolicyFile], Field(max_length=64)] = ()
    """Policy files, see [policy](policy.md); `*` stands for any characters of a name. Read again when one changes and
    on SIGHUP, as a whole: while one file is not valid the policies in force stay."""
    clusterFiles: Annotated[Items[PolicyFile], Field(max_length=64)] = ()
    """Policy files of a cluster, which the [manager](policies-kubernetes.md) writes, read as those of `files` are.
    Beside them the policies of `files` are those of a namespace: they only narrow what policies of the cluster
    allow, and while one of `files` is not valid, changes of `clusterFiles` take effect all the same."""
    templates: Annotated[Items[_Template], Field(max_length=64)] = ()
    """Where attributes of workloads are in their SPIFFE IDs, with the placeholders `{namespace}`, `{serviceAccount}`,
    `{country}`, `{sensitivity}` and `{compartment}`; the first that fits. Then
    `spiffe://<trustDomain>/ns/{namespace}/sa/{serviceAccount}`."""
    attributes: Annotated[Items[AttributeSettings], Field(max_length=65_536)] = ()
    """Attributes of single workloads, before those in their SPIFFE IDs."""

    def attribute_source(self, trust_domain: TrustDomain) -> AttributeSource:
        """Where attributes come from."""
        given = {
            SpiffeID.parse(each.spiffeID): Attributes(
                level=None if each.level is None else SecurityLevel.parse(each.level), compartment=each.compartment
            )
            for each in self.attributes
        }
        return AttributeSource.of(trust_domain, [IdTemplate.parse(text) for text in self.templates], given)

    def configured_policy(self, trust_domain: TrustDomain) -> AuthorizationPolicy:
        """What `default` and `allow` permit."""
        rules = [Rule(f"allow {text}", (Source((parse_matcher(text),)),)) for text in self.allow]
        if self.default == "allow":
            rules.append(Rule(DEFAULT_ALLOW, (Source((MemberOf(trust_domain),)),)))
        return AuthorizationPolicy(CONFIGURATION, Action.ALLOW, tuple(rules))


class ConfiguredPolicy(Settings):
    """What a configuration of the proxy says of policies; its other keys are not looked at."""

    model_config = ConfigDict(extra="ignore")

    trustDomain: TrustDomainText
    policy: PolicySettings = PolicySettings()


@dataclass(frozen=True)
class Policies:
    """
    What decides about the clients of inbound listeners; replaced as a whole.

    Attributes:
        rules: all policies.
        attributes: what is known of workloads.
        files: what was read of files.
    """

    rules: PolicySet
    attributes: AttributeSource
    files: PolicyFiles
    #: The policies narrowed to each kind of connection, by the facts without attributes.
    _connections: dict[tuple[object, ...], ConnectionPolicy] = field(default_factory=dict, init=False, repr=False)

    def connection(
        self,
        listener: str,
        port: int,
        client: SpiffeID,
        own: SpiffeID,
        *,
        post_quantum: bool = False,
        sni: str = "",
        alpn: str = "",
    ) -> ConnectionPolicy:
        """The policies, narrowed to a connection; for the arguments see :class:`svc.policy.rules.ConnectionFacts`."""

        def narrowed() -> ConnectionPolicy:
            of = self.attributes.attributes
            return self.rules.connection(
                ConnectionFacts(listener, port, client, of(client), of(own), post_quantum, sni, alpn)
            )

        return cached(self._connections, (listener, port, client, own, post_quantum, sni, alpn), narrowed)

    @classmethod
    def of(cls, *policies: AuthorizationPolicy, denied: Iterable[DenyList] = ()) -> Policies:
        """Policies without files."""
        return cls(PolicySet(policies), AttributeSource(), PolicyFiles(policies, tuple(denied), (), ""))

    @classmethod
    def admitting(cls, *matchers: Matcher) -> Policies:
        """Admit identities to everything, and no others."""
        rules = tuple(Rule(f"allow {each}", (Source((each,)),)) for each in matchers)
        return cls.of(AuthorizationPolicy(CONFIGURATION, Action.ALLOW, rules))

    def listed(self, client: SvidEvidence | SpiffeID) -> Denied | None:
        """The refusal of a client that is on a deny list; of an identity alone, its certificates are not known."""
        for each in self.files.denied:
            if isinstance(client, SpiffeID):
                identity, entry = client, each.entry_for_identity(client)
            else:
                identity, entry = client.spiffe_id, each.entry_for(client)
            if entry is not None:
                return Denied(identity=identity, policy=each.name, rule=entry)
        return None

    def listed_statement(self, statement_id: str, subject: SpiffeID) -> Denied | None:
        """The refusal of a peer whose verified statement is on a deny list."""
        for each in self.files.denied:
            if statement_id in each.statements:
                return Denied(identity=subject, policy=each.name, rule=f"statement {statement_id}")
        return None


def load_policies(
    section: PolicySettings,
    trust_domain: str,
    labels: PodLabels = lambda: None,
    former: PolicyFiles | None = None,
) -> Policies:
    """
    Read the policy files of a configuration, for a pod with these labels; blocks on the disk.

    Raises:
        ConfigUnreadable, ConfigInvalid, PolicyFilesRefused: as :func:`svc.policyfiles.files.read_policies`.
    """
    files = read_policies(section.files, labels=labels, cluster=section.clusterFiles, former=former)
    return policies_of(section, trust_domain, files)


def load_published(
    section: PolicySettings,
    trust_domain: str,
    published: Callable[[PodLabels], PolicyFiles],
    labels: PodLabels = lambda: None,
    former: PolicyFiles | None = None,
) -> Policies:
    """
    Read what a manager has published in place of ``clusterFiles``, for a pod with these labels; blocks on the disk.

    Args:
        section: of the configuration; its ``files`` are beside what is published.
        trust_domain: the own one.
        published: reads what is published.
        labels: those of the pod.
        former: what is in force.

    Raises:
        PublishedRefused, ConfigInvalid, PolicyFilesRefused: as :func:`svc.policyfiles.published.read_published`.
    """
    of_cluster = {path for pattern in section.clusterFiles for path in glob.glob(pattern)}
    files = with_own(published(labels), lambda: own_policies(section.files, labels, of_cluster), former)
    return policies_of(section, trust_domain, files)


def policies_of(section: PolicySettings, trust_domain: str, files: PolicyFiles) -> Policies:
    """Put a section and what was read of files together."""
    domain = TrustDomain.parse(trust_domain)
    configured = section.configured_policy(domain)
    # One that allows nobody is none: policies of a namespace alone would narrow it to nothing.
    rules = PolicySet([*([configured] if configured.rules else []), *files.policies])
    return Policies(rules, section.attribute_source(domain), files)


def load_deny_lists(patterns: Iterable[str]) -> Policies:
    """
    Read files that hold deny lists alone; blocks on the disk.

    Raises:
        ConfigUnreadable, ConfigInvalid, PolicyFilesRefused: as :func:`svc.policyfiles.files.read_policies`.
    """
    return Policies(PolicySet(()), AttributeSource(), read_policies(patterns, {"SvcDenyList": DenyListDocument}))
