"""The policies that ``svc policy`` decides by: the files that are named, under a configuration or a trust domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from svc.cli.errors import CommandFailed, UsageRefused
from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.policyfiles.cases import Case, CasesDocument
from svc.policyfiles.document import DenyListDocument, PolicyDocument
from svc.policyfiles.files import KINDS, PolicyFiles, matching_files, policy_files, read_documents, with_own
from svc.policyfiles.settings import ConfiguredPolicy, Policies, policies_of
from svc.settings import ConfigInvalid, load


@dataclass(frozen=True, slots=True)
class PolicySources:
    """
    Where policies come from.

    Args:
        paths: the files; none means those of the configuration.
        config: a configuration of the proxy; empty for none.
        trust_domain: instead of a configuration.
    """

    paths: tuple[str, ...]
    config: str
    trust_domain: str

    @classmethod
    def read(cls, words: Sequence[str], values: Mapping[str, Any]) -> PolicySources:
        """Check what the flags of a command say together."""
        config, trust_domain = values["config"] or "", values["trust_domain"] or ""
        if config and trust_domain:
            raise UsageRefused("--config has the trust domain", "leave out --trust-domain")
        if not config and not trust_domain:
            raise UsageRefused(
                "neither a configuration nor a trust domain was named",
                "give --config FILE of the proxy, or --trust-domain",
            )
        if not words and not config:
            raise UsageRefused("no policy file was named", "name files, or a configuration that has policy.files")
        if trust_domain:
            try:
                TrustDomain.parse(trust_domain)
            except SvcError as error:
                raise UsageRefused(f"--trust-domain: {error}", error.hint) from error
        return cls(tuple(words), config, trust_domain)

    def load(self) -> tuple[Policies, list[tuple[str, Case]]]:
        """
        Read the policies, and the cases of all tables in the files, each with the name of its table.

        Raises:
            CommandFailed: with every defect of the first file that has any.
        """
        try:
            configured = self._configured()
            section = configured.policy
            cluster = () if self.paths else matching_files(section.clusterFiles)
            own = [each for each in matching_files(self.paths or section.files) if each not in cluster]
            tables: list[CasesDocument] = []
            read = partial(_read, own, tables, local=bool(cluster))
            files = with_own(_read(cluster, tables), read) if cluster else read()
            policies = policies_of(section, configured.trustDomain, files)
        except ConfigInvalid as error:
            raise CommandFailed(error, remarks=tuple(str(each) for each in error.problems[1:])) from error
        return policies, [(table.metadata.name, case) for table in tables for case in table.spec.cases]

    def _configured(self) -> ConfiguredPolicy:
        if self.config:
            return load(self.config, ConfiguredPolicy)
        return ConfiguredPolicy(trustDomain=self.trust_domain)


def _read(paths: Sequence[str], tables: list[CasesDocument], *, local: bool = False) -> PolicyFiles:
    """Read files whatever pods they are about; their tables of cases are added to ``tables``."""
    kinds: Mapping[str, type[Any]] = {**KINDS, "SvcPolicyTest": CasesDocument}
    documents, digest = read_documents(paths, kinds)
    tables += (document for _path, document in documents if isinstance(document, CasesDocument))
    policies = [each for each in documents if isinstance(each[1], PolicyDocument | DenyListDocument)]
    return policy_files(policies, paths, digest, select=False, local=local)
