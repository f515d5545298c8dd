"""
``twistd svc-authority``: options, configuration, and the reactor that the authority needs.

``twistd`` parses the options of a plugin before anything imports a reactor, so the asyncio reactor is installed there
and ``--reactor`` is not needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService
from twisted.internet import asyncioreactor

from svc.authority.config import AuthoritySettings, load_settings
from svc.errors import SvcError
from svc.process.checking import Check
from svc.process.options import ProcessOptions, config_parameters

if TYPE_CHECKING:
    from svc.authority.service import Authority


class WrongReactor(SvcError):
    """svc-authority needs the asyncio reactor, and {found} is installed"""

    reason = "wrong_reactor"
    hint = "leave --reactor away, or pass --reactor=asyncio"


class Options(ProcessOptions):
    """The options of ``twistd svc-authority``."""

    longdesc = "Serves an ephemeral SPIFFE trust domain and issues post-quantum leaves; see docs/authority.md."
    optParameters = config_parameters("/etc/svc/authority.yaml")

    def read(self, path: str) -> AuthoritySettings:
        return load_settings(path)

    def checks(self, settings: AuthoritySettings) -> Iterable[Check]:
        from svc.authority.opened import opened

        return opened(settings)

    def install_reactor(self) -> None:
        """Install the asyncio reactor, with its event loop as the current one, which libraries use."""
        loop = asyncio.SelectorEventLoop()
        asyncio.set_event_loop(loop)
        asyncioreactor.install(loop)


def makeService(options: Options) -> IService:
    """Build the authority for ``twistd``; nothing is opened yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "authority", partial(_authority, config_path=options["config"]))


def _authority(settings: AuthoritySettings, reactor: Any, *given: Any, config_path: str) -> Authority:
    # It needs the reactor that the options have installed.
    if not isinstance(reactor, asyncioreactor.AsyncioSelectorReactor):
        raise WrongReactor(found=type(reactor).__name__)
    from svc.authority.service import Authority

    return Authority(settings, reactor, *given, config_path=config_path)
