"""Where the policies of a proxy come from: files, and the manager of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from svc.identity import SpiffeID, TrustDomain
from svc.identity.matchers import ExactID
from svc.naming import MANAGER_PATH, POLICY_PATH
from svc.policyfiles.files import PolicyFiles
from svc.policyfiles.published import MAX_PUBLISHED, read_published
from svc.policyfiles.settings import Policies, load_policies, load_published
from svc.policyfiles.watch import PolicyObserver, PolicyWatch, Read, in_daemon_thread
from svc.process.clock import utc_now
from svc.proxy.config import ProxySettings
from svc.proxy.facts import label_files, read_labels
from svc.workload.managerwatch import ManagerObserver, ManagerWatch
from svc.workload.source import WorkloadSource


def file_watch(
    settings: ProxySettings,
    read: Read[ProxySettings],
    apply: Callable[[Policies], None],
    observer: PolicyObserver[ProxySettings],
    reactor: Any,
) -> PolicyWatch[ProxySettings]:
    """Make the watch of the files on which policies depend; see :class:`svc.policyfiles.watch.PolicyWatch`."""
    return PolicyWatch(
        settings,
        read=read,
        apply=apply,
        observer=observer,
        clock=reactor,
        in_thread=in_daemon_thread(reactor),
        watched=lambda given: (*given.policy.clusterFiles, *given.policy.files, *label_files(given.workload)),
    )


def read_files(settings: ProxySettings, former: PolicyFiles | None) -> Policies:
    """Read the policies of files; see :func:`svc.policyfiles.settings.load_policies`."""
    return load_policies(settings.policy, settings.trustDomain, partial(read_labels, settings.workload), former)


def manager_watches(
    settings: ProxySettings,
    policies: PolicyWatch[ProxySettings],
    source: WorkloadSource,
    reactor: Any,
    observer: ManagerObserver,
) -> Iterator[ManagerWatch]:
    """
    Make what offers the policies of the manager, if there is one.

    Args:
        settings: the configuration.
        policies: gets them.
        source: the own credentials.
        reactor: the reactor.
        observer: receives what becomes of the requests.
    """
    if settings.controlPlane is None:
        return
    address = str(settings.controlPlane)

    async def changed(data: bytes, version: str) -> None:
        published = partial(read_published, data, version, address)

        def read(given: ProxySettings, former: PolicyFiles | None) -> Policies:
            labels = partial(read_labels, given.workload)
            return load_published(given.policy, given.trustDomain, published, labels, former)

        await policies.offer(read)

    yield ManagerWatch(
        address,
        POLICY_PATH,
        source,
        reactor,
        now=utc_now,
        expected=ExactID(SpiffeID(TrustDomain.parse(settings.trustDomain), MANAGER_PATH)),
        max_answer=MAX_PUBLISHED,
        ready=source.when_ready,
        changed=changed,
        observer=observer,
    )
