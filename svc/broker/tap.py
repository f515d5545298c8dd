"""
``twistd svc-broker``: options, configuration, log.

Owns what an operator sees of a bad configuration: one line a problem, exit status 1.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc import __version__
from svc.broker.config import BrokerSettings
from svc.settings import load
from svc.transport.reactor import run_timers_evenly
from svc.workload.process import ProcessOptions, config_parameters, end_in_order, end_with_failure

if TYPE_CHECKING:
    from svc.broker.service import BrokerService


class Options(ProcessOptions):
    """What ``twistd svc-broker`` takes."""

    longdesc = "An embedded MQTT 3.1.1 and 5.0 broker for one machine, with access by SPIFFE identity."
    optParameters = config_parameters("/etc/svc/broker.yaml")

    def read(self, path: str) -> BrokerSettings:
        """Judge the file."""
        return load(path, BrokerSettings)


def makeService(options: Options) -> IService:
    """
    Build the broker for ``twistd``.

    Args:
        options: the parsed options.

    Returns:
        The service; nothing runs yet.
    """
    from twisted.internet import reactor

    from svc.telemetry.logs import LoggedService
    from svc.telemetry.processlog import process_log
    from svc.telemetry.records import Origin

    observer, outlet = process_log(Origin("broker", __version__), options.parent or {}, options["log-format"])
    run_timers_evenly(reactor)
    root = LoggedService(observer, outlet)
    broker = _broker(options["settings"], reactor, outlet)
    broker.setServiceParent(root)
    reactor.callWhenRunning(_on_signals, reactor, broker)
    return root


def _broker(settings: BrokerSettings, reactor: object, outlet: object) -> BrokerService:
    # Imported when the log has standard output for itself: what libraries print while they are loaded is no record.
    from svc.broker.service import BrokerService

    return BrokerService(settings, reactor, lambda: end_with_failure(reactor, outlet))  # type: ignore[arg-type]


def _on_signals(reactor: Any, broker: BrokerService) -> None:
    """Look for renewed certificates on SIGHUP, which would end the process otherwise; end on SIGTERM in order."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: reactor.callFromThread(broker.renew_certificates))
    end_in_order(reactor)
