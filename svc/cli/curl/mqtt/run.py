"""
``svc curl`` with the URL of a broker, from a plan to an exit status.

Owns the sequence: trust anchors where artifacts are verified, the connection with MQTT 5.0 or else 3.1.1, then message
by message until the connection ends or a signal comes, both of which are success once the broker granted the topics.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from svc.cli.curl.mqtt.connection import BrokerNetwork, OlderBroker, SubscriberConnection, SubscriptionContext
from svc.cli.curl.mqtt.plan import MqttPlan
from svc.cli.curl.mqtt.printing import ArtifactPrinter
from svc.cli.curl.mqtt.verification import Artifact, ArtifactVerifier
from svc.cli.globals import Invocation
from svc.cli.logs import begin_logging
from svc.cli.output import Console
from svc.cli.reactor import run_until_done
from svc.process.clock import use_monotonic_clock
from svc.wire.mqtt import Version

_log = Logger(namespace="svc.cli")
_NAMES = {Version.V5: "MQTT 5.0", Version.V311: "MQTT 3.1.1"}


def run_subscription(plan: MqttPlan, invocation: Invocation) -> int:
    """
    Print artifacts until the end.

    Returns:
        The exit status of success.

    Raises:
        CommandFailed: an artifact failed the verification.
        SvcError: something else failed.
    """
    from twisted.internet import reactor

    use_monotonic_clock(reactor)
    begin_logging(plan.options, invocation.console)
    context = BrokerNetwork(reactor, plan, invocation.console)
    return run_until_done(
        reactor, lambda: Deferred.fromCoroutine(print_artifacts(plan, invocation.console, context)), context.close
    )


async def print_artifacts(plan: MqttPlan, console: Console, context: SubscriptionContext) -> int:
    """Carry out a plan; raises as :func:`run_subscription`, and ``CancelledError`` before the topics are granted."""
    if plan.verify:
        if plan.demands.profile.warning:
            console.warn(plan.demands.profile.warning)
        await context.trust()
    try:
        connection = await _open(context, Version.V5)
    except OlderBroker:
        _log.info("the broker {server} does not support MQTT 5.0", server=plan.broker.server)
        connection = await _open(context, Version.V311)
    console.notice(
        f"subscribed to {' and '.join(plan.filters)} at {plan.broker.server} by {_NAMES[connection.version]}"
    )
    printer = ArtifactPrinter(plan, console, context.clock)
    verifier = ArtifactVerifier(plan.demands) if plan.verify else None
    try:
        while (arrival := await connection.next()) is not None:
            if arrival.payload:  # an empty one only removes a retained message
                await _print(Artifact.of(arrival, plan.prefix), printer, verifier, context)
            connection.acknowledge(arrival)
        reason = f": {connection.ended}" if connection.ended else ""
        console.notice(f"the broker {plan.broker.server} closed the connection{reason}")
    except CancelledError:  # a signal
        _log.debug("interrupted")
    finally:
        await connection.close()
    for absent in verifier.end() if verifier is not None else ():
        await printer.print_verified(absent)
    printer.check_failures()
    return 0


async def _open(context: SubscriptionContext, version: Version) -> SubscriberConnection:
    connection = await context.connect(version)
    try:
        await connection.opened
    except BaseException:
        await connection.close()
        raise
    return connection


async def _print(
    artifact: Artifact, printer: ArtifactPrinter, verifier: ArtifactVerifier | None, context: SubscriptionContext
) -> None:
    if verifier is None:
        await printer.print_unverified(artifact)
        return
    found = verifier.verify(artifact, await context.trust(), context.now())
    for verified in found:
        await printer.print_verified(verified)
    if not found:
        await printer.print_waiting(artifact)
