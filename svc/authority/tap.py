"""``twistd svc-authority``: options, configuration, and the asyncio reactor, which gRPC needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc.authority.config import AuthoritySettings, load_settings
from svc.process.checking import Check
from svc.process.on_asyncio import AsyncioOptions, require_asyncio
from svc.process.options import config_parameters

if TYPE_CHECKING:
    from svc.authority.service import Authority


class Options(AsyncioOptions):
    """The options of ``twistd svc-authority``."""

    longdesc = "Serves an ephemeral SPIFFE trust domain and issues post-quantum leaves; see docs/authority.md."
    optParameters = config_parameters("/etc/svc/authority.yaml")

    def read(self, path: str) -> AuthoritySettings:
        return load_settings(path)

    def checks(self, settings: AuthoritySettings) -> Iterable[Check]:
        from svc.authority.opened import opened

        return opened(settings)


def makeService(options: Options) -> IService:
    """Build the authority for ``twistd``; nothing is opened yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "authority", partial(_authority, config_path=options["config"]))


def _authority(settings: AuthoritySettings, reactor: Any, *given: Any, config_path: str) -> Authority:
    require_asyncio(reactor, "svc-authority")
    from svc.authority.service import Authority

    return Authority(settings, reactor, *given, config_path=config_path)
