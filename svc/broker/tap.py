"""
``twistd svc-broker``: options, configuration, log.

Owns the output for an invalid configuration: one line for each problem, exit status 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc.broker.config import BrokerSettings
from svc.broker.passwordfile import read_users
from svc.policyfiles.settings import load_deny_lists
from svc.process.checking import Check, check_pages, check_port, check_service
from svc.process.options import ProcessOptions, config_parameters
from svc.settings import load

if TYPE_CHECKING:
    from svc.broker.service import BrokerService


class Options(ProcessOptions):
    """What ``twistd svc-broker`` takes."""

    longdesc = "An embedded MQTT 3.1.1 and 5.0 broker for one machine, with access by SPIFFE identity."
    optParameters = config_parameters("/etc/svc/broker.yaml")

    def read(self, path: str) -> BrokerSettings:
        """Parse and validate the file."""
        return load(path, BrokerSettings)

    def checks(self, settings: BrokerSettings) -> Iterable[Check]:
        """Yield a check of each thing that the broker opens at its start, in the same order."""
        from svc.transport.certificates import CertificateCreator
        from svc.transport.client_certificates import ClientTrust

        if files := settings.policy.files:
            yield Check(f"deny lists {', '.join(files)}", partial(load_deny_lists, files))
        if settings.passwordFile is not None:
            yield Check(f"password file {settings.passwordFile}", partial(read_users, settings.passwordFile))
        yield from check_pages(settings)
        if settings.persistence is not None:
            path = settings.persistence.path
            yield Check(f"database {path}", partial(_check_database, path))
        if settings.needs_svid:
            yield check_service("Workload API", "spiffeSocketPath", settings.spiffeSocketPath)
        for tls in (each.tls for each in settings.listeners):
            if tls is not None and tls.certificate is not None and tls.key is not None:
                yield Check(f"certificate {tls.certificate}", partial(CertificateCreator, tls.certificate, tls.key))
            if tls is not None and tls.authorities is not None:
                paths = ", ".join(tls.authorities.paths)
                yield Check(f"client authorities {paths}", partial(ClientTrust.read, tls.authorities))
        for number, listener in enumerate(settings.listeners):
            yield check_port(f"listener {listener.name}", f"listeners[{number}].listen", listener.listen)


def _check_database(path: str) -> None:
    from svc.broker.persistence.opening import check_file

    check_file(path)


def makeService(options: Options) -> IService:
    """Build the service for ``twistd``; nothing runs yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "broker", _broker)


def _broker(*given: Any) -> BrokerService:
    # Reads the deny lists and the users.
    from svc.broker.service import BrokerService

    return BrokerService(*given)
