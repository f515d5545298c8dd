"""
``twistd svc-proxy``: options, configuration, log.

Owns what an operator sees of a bad configuration: one line a problem, exit status 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc.naming import DEFAULT_PROXY_CONFIG
from svc.process.checking import Check
from svc.process.options import ProcessOptions, config_parameters
from svc.proxy.config import ProxySettings
from svc.proxy.stores import check_driver
from svc.settings import load

if TYPE_CHECKING:
    from svc.proxy.service import ProxyService


class Options(ProcessOptions):
    """What ``twistd svc-proxy`` takes."""

    longdesc = "Terminates SPIFFE mTLS in front of an application, authorizes by identity and notarizes requests."
    optParameters = config_parameters(DEFAULT_PROXY_CONFIG)

    def read(self, path: str) -> ProxySettings:
        """Validate the file, and check that the database driver it needs is installed."""
        settings = load(path, ProxySettings)
        if settings.stores:
            check_driver(settings.notary)
        return settings

    def checks(self, settings: ProxySettings) -> Iterable[Check]:
        """What is opened at the start."""
        from svc.proxy.startup_checks import opened

        return opened(settings)


def makeService(options: Options) -> IService:
    """Build the proxy for ``twistd``."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "proxy", proxy)


def proxy(*given: Any, **keys: Any) -> ProxyService:
    """Build the proxy alone, which reads the policy files; the arguments are those of ``Assembly``."""
    from svc.proxy.assembly import Assembly

    return Assembly(*given, **keys).build()
