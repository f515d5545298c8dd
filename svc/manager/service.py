"""The manager as a daemon: the composition of its parts."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from random import SystemRandom
from typing import Any, Final
from uuid import uuid4

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity import SpiffeID, X509Svid
from svc.identity.matchers import parse_matcher
from svc.injection import InjectionSettings
from svc.kube.cache import run_all
from svc.kube.client import Client, connect
from svc.kube.errors import KubernetesError
from svc.manager.admission.configuration import CONNECT_PATH, PATH, POLICIES_PATH
from svc.manager.admission.connections import ConnectionReviews
from svc.manager.admission.controller import WebhookController
from svc.manager.admission.server import Answer, WebhookServer, answers
from svc.manager.config import ManagerSettings, WebhookSettings
from svc.manager.context import ClusterContext, ClusterSpire
from svc.manager.control import CONTROLLERS, Control, Controller, ControllerT, Supervised
from svc.manager.federation.controller import FederationController
from svc.manager.federation.exchange import BundleExchangeController
from svc.manager.hotconfig import RESTART_SECONDS, HotConfiguration, ManagerConfiguration
from svc.manager.identities.controller import EntryController
from svc.manager.instances.controller import InstanceController
from svc.manager.issuer.controller import IssuerKeysController
from svc.manager.metrics import ManagerMetrics
from svc.manager.metricspage.access import MetricsAccess
from svc.manager.networkpolicies.controller import LONGEST_PAUSE, NetworkPolicyController
from svc.manager.policies.controller import PolicyController
from svc.manager.policies.review import LicenseEffect
from svc.manager.policies.server import PolicyServer, Refused
from svc.manager.reviews import Reviews
from svc.manager.statements.decision import Account
from svc.manager.statements.endpoint import StatementPages
from svc.manager.statements.issuing import StatementIssuer
from svc.manager.statements.signing import ManagerKeys
from svc.notary.pqleaf import PqLeaf
from svc.process.clock import utc_now
from svc.process.daemon import Daemon
from svc.process.history import Totals
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.health import Health
from svc.telemetry.log_limits import FailureStreak
from svc.telemetry.logs import emit, log_reload, log_reload_refused
from svc.transport.creators import TlsIdentity
from svc.workload.pqclient import fetch_pq_leaf

Changed = Callable[[], object]
#: A configuration of the cluster is in force, and it was read from the API server.
CONFIGURATION: Final = "configuration"
#: The server of the webhook listens, with a certificate.
WEBHOOK: Final = "webhook"
#: The API server has had the configuration of the webhook.
INJECTION: Final = "injection"


class RestartRequired(SvcError):
    """only cluster of the configuration of svc-manager can change while it runs"""

    reason = "manager_restart_required"
    hint = "restart it: another replica goes on meanwhile"


class Manager(Daemon[ManagerSettings]):
    """
    One replica of the manager of a cluster.

    Args:
        settings: the configuration.
        reactor: the asyncio reactor.
        fatal: see :class:`~svc.process.daemon.Daemon`.
        load: see :class:`~svc.process.daemon.Daemon`.
    """

    log = Logger()

    def __init__(
        self,
        settings: ManagerSettings,
        reactor: Any,
        fatal: Callable[[], None],
        load: Callable[[], ManagerSettings],
        *,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        conditions = [CONFIGURATION, *([] if settings.webhook is None else [WEBHOOK, INJECTION])]
        super().__init__(settings, reactor, Health(conditions, now=now), fatal, load)
        self._now = now
        # Another one after each start: what a former process of this pod held is not held by this one.
        self._identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid4().hex[:12]}"
        self._client: Client | None = None
        self._hot: HotConfiguration | None = None
        self._context: ClusterContext | None = None
        self._control: Control | None = None
        self._policies: PolicyController | None = None
        self._entries: EntryController | None = None
        self._exchange: BundleExchangeController | None = None
        self._server: PolicyServer | None = None
        self._controlling: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._valid = False
        self._streak = FailureStreak()
        registry = CollectorRegistry()
        self._metrics = ManagerMetrics(registry, CONTROLLERS)
        self._metrics.license_valid(self._license_valid)
        self._webhook = None if settings.webhook is None else self._webhook_server(settings.webhook)
        self._access = MetricsAccess(lambda: self._client, now, reactor.seconds) if settings.metricsSecure else None
        self.serve_pages("manager", Totals, self._members, metrics=registry, metrics_guard=self._access)

    async def open(self) -> None:
        """Connect; the API server may come later."""
        kubeconfig = self.settings.kubeconfig or ""
        self._client = client = await Deferred.fromFuture(asyncio.ensure_future(connect(kubeconfig)))
        self._hot = HotConfiguration(
            client,
            self.settings.namespace,
            self.settings.cluster,
            self._metrics,
            partial(self._configured, client),
            self._refused,
            self._failed,
        )
        caches = list(self._hot.caches)
        if self._webhook is not None:
            caches.append(self._webhook.follow(client, self._failed))
        self._running = asyncio.ensure_future(run_all(caches))

    def closing(self) -> Iterable[Callable[[], object]]:
        return (
            lambda: None if self._webhook is None else self._webhook.stop(),
            lambda: _ended(self._running),
            lambda: _ended(self._controlling),
            lambda: None if self._client is None else _future(self._client.aclose()),
        )

    async def finish(self) -> None:
        """What is written at this moment is cancelled with its controller."""

    async def take(self, settings: ManagerSettings) -> Mapping[str, str | int | bool]:
        """Accept another ``cluster`` only."""
        if settings.model_copy(update={"cluster": self.settings.cluster}) != self.settings:
            raise RestartRequired
        self.settings = settings
        if self._hot is not None:
            self._hot.use_file(settings.cluster)
        return {}

    def sweep(self) -> None:
        if self._webhook is not None:
            self._webhook.check()

    def _webhook_server(self, settings: WebhookSettings) -> WebhookServer:
        return WebhookServer(
            settings,
            self.settings.namespace,
            self._answers(),
            self._metrics,
            self._reactor,
            self._now,
            partial(self._health.report, WEBHOOK),
        )

    def _answers(self) -> Mapping[str, Answer]:
        """What the webhook answers, by its paths."""
        reviews = Reviews(lambda: self._context, lambda: self._policies, self._license_effect)
        connections = ConnectionReviews(lambda: self._client)
        return {PATH: reviews.pod, CONNECT_PATH: connections.answer, POLICIES_PATH: reviews.policy}

    def _license_effect(self) -> LicenseEffect | None:
        licenses = None if self._control is None else self._control.licenses
        found = licenses.effect if licenses is not None and licenses.synced else None
        return None if found is None else LicenseEffect(*found)

    def _further(self, context: ClusterContext, spire: ClusterSpire | None) -> Iterator[Supervised[Controller]]:
        """Make the controllers of what is configured."""
        webhook, issuer = self.settings.webhook, context.settings.issuer
        if webhook is not None:
            answering = partial(answers, self._reactor, webhook, context.namespace)
            published = partial(self._health.holds, INJECTION)
            yield Supervised(partial(WebhookController, context, webhook, answering, published), self._metrics)
        node = os.environ.get("NODE_NAME", "")
        yield Supervised(partial(InstanceController, context, node), self._metrics, longest_pause=LONGEST_PAUSE)
        if issuer is not None:
            yield Supervised(partial(IssuerKeysController, context, issuer, os.urandom), self._metrics)
        if spire is not None:
            make = partial(EntryController, context, spire)
            entries = Supervised(self._served(make), self._metrics, longest_pause=spire.settings.every)
            self._entries = entries.controller
            yield entries
        policies = Supervised(
            self._served(partial(PolicyController, context)), self._metrics, longest_pause=LONGEST_PAUSE
        )
        self._policies = policies.controller
        yield policies
        if context.settings.federation is not None and spire is not None:
            federation = partial(
                FederationController,
                *(context, context.settings.federation, spire, self.settings.m2mAddr, self._reactor),
            )
            yield Supervised(federation, self._metrics, longest_pause=spire.settings.every)
            make_exchange = partial(BundleExchangeController, context, spire, self._reactor, SystemRandom().random)
            exchange = Supervised(self._served(make_exchange), self._metrics, longest_pause=spire.settings.every)
            self._exchange = exchange.controller
            yield exchange
        # Also where there shall be none: those that are there are deleted.
        yield Supervised(partial(NetworkPolicyController, context), self._metrics, longest_pause=LONGEST_PAUSE)

    def _served(self, make: Callable[[Changed], ControllerT]) -> Callable[[Changed], ControllerT]:
        """Make a controller whose changes are told to those that wait for policies or roots."""

        def made(changed: Changed) -> ControllerT:
            def both() -> None:
                changed()
                if self._server is not None:
                    self._server.changed()

            return make(both)

        return made

    def _policy_server(self, context: ClusterContext, spire: ClusterSpire | None) -> PolicyServer | None:
        address = self.settings.controlPlaneAddr
        if spire is None or address is None:
            return None
        injection = context.settings.injection
        return PolicyServer(
            context,
            spire,
            address,
            self._reactor,
            ready=self._accounts_known,
            namespace_of=lambda spiffe_id: None if (found := self._account_of(spiffe_id)) is None else found.namespace,
            published=lambda namespace: None if self._policies is None else self._policies.published(namespace),
            roots=lambda: None if self._exchange is None else self._exchange.roots,
            statements=None if injection is None else partial(self._statement_pages, context, injection),
        )

    def _statement_pages(
        self, context: ClusterContext, injection: InjectionSettings, identity: TlsIdentity, refused: Refused
    ) -> StatementPages:
        def leaf_of(svid: X509Svid) -> asyncio.Future[PqLeaf]:
            leaf = fetch_pq_leaf(
                str(injection.pqIssuer),
                svid,
                identity,
                self._reactor,
                now=self._now,
                expected=parse_matcher(injection.pqIssuerID),
            )
            return leaf.asFuture(asyncio.get_running_loop())

        issuer = StatementIssuer(context, ManagerKeys(identity, leaf_of, self._now).current, os.urandom)
        counted = context.metrics.statements_requested
        return StatementPages(issuer, self._accounts_known, self._account_of, counted, refused, self._now)

    def _accounts_known(self) -> bool:
        return self._entries is not None and self._entries.synced

    def _account_of(self, spiffe_id: SpiffeID) -> Account | None:
        found = None if self._entries is None else self._entries.account_of(spiffe_id)
        return None if found is None else Account(*found)

    def _configured(self, client: Client, configuration: ManagerConfiguration) -> None:
        """Run the controllers under another configuration; those before are cancelled first."""
        former, self._controlling = self._controlling, None
        if self._access is not None:
            self._access.use(configuration.tls)
        namespace, cluster = self.settings.namespace, configuration.cluster
        context = ClusterContext(client, namespace, cluster, self._metrics, self._now, self._failed)
        self._context, self._entries, self._exchange = context, None, None
        given = cluster.spire
        spire = None if given is None else ClusterSpire(given, context.trust_domain, self._metrics, self._reactor)
        self._server = server = self._policy_server(context, spire)
        beside = [each.run for each in (spire, server) if each is not None]
        self._control = Control(context, self._identity, self._further(context, spire), beside)
        self._controlling = asyncio.ensure_future(self._controlled(self._control, former))
        self._health.holds(CONFIGURATION)
        log_reload(self.log, DaemonEvent.CONFIG_LOADED, attributes={"trust_domain": cluster.trustDomain})

    async def _controlled(self, control: Control, former: asyncio.Task[None] | None) -> None:
        if former is not None:
            former.cancel()
            await asyncio.wait((former,))
        while True:
            try:
                await control.run()
            except Exception:  # noqa: BLE001 - a defect of one part must not end all others for good
                self.log.failure("the controllers ended", Failure())
            await asyncio.sleep(RESTART_SECONDS)

    def _refused(self, error: SvcError) -> None:
        log_reload_refused(self.log, error)
        if not self._health.condition(CONFIGURATION).holds:
            self._health.fails_with(CONFIGURATION, error)

    def _failed(self, error: SvcError) -> None:
        if self._streak.failed(error.reason):
            emit(
                self.log,
                ManagerEvent.KUBERNETES_FAILED,
                detail_reason=error.reason,
                detail=str(error),
                attributes={"attempts": self._streak.count},
            )
        if not self._health.condition(CONFIGURATION).holds and isinstance(error, KubernetesError):
            self._health.fails_with(CONFIGURATION, error)

    def _license_valid(self) -> bool:
        """Whether there is a valid license; as it was last known until all licenses were read."""
        if self._control is not None and self._control.licenses.synced:
            self._valid = self._control.licenses.counting.state.in_force
        return self._valid

    def _members(self) -> Mapping[str, Any]:
        return {}


def _future(work: Any) -> Deferred[Any]:
    return Deferred.fromFuture(asyncio.ensure_future(work))


def _ended(task: asyncio.Task[None] | None) -> Deferred[None] | None:
    """Cancel a task; fires when it has ended."""
    if task is None:
        return None

    async def end() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return _future(end())
