"""``twistd svc-agent``: options, configuration, and the asyncio reactor, which gRPC needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from twisted.application.service import IService
from twisted.python.usage import UsageError

from svc.agent.config import AgentSettings, FilesSettings, load_settings
from svc.agent.versions import VersionedFolder
from svc.naming import DEFAULT_AGENT_CONFIG
from svc.process.checking import Check, check_new_socket, check_pages, check_service, check_written_file
from svc.process.on_asyncio import AsyncioOptions, require_asyncio
from svc.process.options import config_parameters
from svc.process.values import parse_optional_address


class Options(AsyncioOptions):
    """The options of ``twistd svc-agent``."""

    longdesc = "The agent of a node: mounts the Workload API into pods, writes SVIDs to files; see docs/agent.md."
    optParameters = [
        *config_parameters(DEFAULT_AGENT_CONFIG),
        ["metrics-addr", None, None, 'Where /metrics is served, instead of metricsAddr; "0" or "" disables it.'],
    ]

    def read(self, path: str) -> AgentSettings:
        settings = load_settings(path)
        given = self["metrics-addr"]
        if given is None:
            return settings
        try:
            return settings.model_copy(update={"metricsAddr": parse_optional_address(given)})
        except ValueError as error:
            raise UsageError(f"--metrics-addr {given}: expected {error}") from error

    def checks(self, settings: AgentSettings) -> Iterable[Check]:
        """What is opened at the start."""
        yield from check_pages(settings)
        yield check_service("Workload API", "spiffeSocketPath", settings.spiffeSocketPath)
        if settings.csi is not None:
            yield check_new_socket("CSI driver", "csi.socket", settings.csi.socket)
            yield check_written_file("registration of the CSI driver in", "csi.registration", settings.csi.registration)
        for number, files in enumerate(settings.files):
            yield from _files_checks(f"files[{number}]", files)


def _files_checks(key: str, files: FilesSettings) -> Iterable[Check]:
    owner, group = (-1 if each is None else each for each in (files.owner, files.group))
    yield Check(f"files in {files.folder}", partial(VersionedFolder(files.folder).probe, owner, group))
    if files.pqIssuer is not None:
        yield check_service("PQ issuer", f"{key}.pqIssuer", str(files.pqIssuer))


def makeService(options: Options) -> IService:
    """Build the agent for ``twistd``; nothing is opened yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "agent", _agent)


def _agent(settings: AgentSettings, reactor: Any, *given: Any) -> Any:
    require_asyncio(reactor, "svc-agent")
    from svc.agent.service import Agent

    return Agent(settings, reactor, *given)
