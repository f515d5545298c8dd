"""
What a proxy opens at its start, for ``--check-config``.

Owns the list; each thing is tested in :mod:`svc.process.checking` or where it is read at the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from svc.policyfiles.settings import load_policies
from svc.process.checking import Check, check_pages, check_port, check_service
from svc.proxy.config import NotarySettings, ProxySettings
from svc.proxy.facts import read_facts, read_labels
from svc.proxy.stores import check_store, store_name
from svc.workload.pqfile import pq_bundle_path, read_pq_bundles


def opened(settings: ProxySettings) -> Iterator[Check]:
    """List it."""
    if files := (*settings.policy.clusterFiles, *settings.policy.files):
        what = f"policy files {', '.join(files)}"
        labels = partial(read_labels, settings.workload)
        yield Check(what, partial(load_policies, settings.policy, settings.trustDomain, labels))
    yield from check_pages(settings)
    notary = settings.notary
    if settings.stores:
        yield Check(f"notary database {store_name(notary)}", partial(check_store, notary))
    verifies = any(each.demanded_of_peer != "none" for each in settings.listeners)
    if notary.profile != "classical" and (settings.notarizes or verifies):
        yield from _of_roots(notary, settings.spiffeSocketPath)
    if notary.profile != "classical" and settings.notarizes:
        yield check_service("post-quantum issuer", "notary.pqIssuer", notary.pqIssuer or "")
    yield check_service("Workload API", "spiffeSocketPath", settings.spiffeSocketPath)
    if settings.workload.podInfo is not None:
        yield Check(f"facts of the workload in {settings.workload.podInfo}", partial(read_facts, settings.workload))
    for number, each in enumerate(settings.listeners):
        yield check_port(f"{each.direction} listener {each.name}", f"listeners[{number}].listen", each.listen)


def _of_roots(notary: NotarySettings, socket: str) -> Iterator[Check]:
    path = pq_bundle_path(notary.pqBundle, os.environ, socket)
    # The default file may be absent.
    if path is not None and (os.path.exists(path) or path != pq_bundle_path(None, {}, socket)):
        yield Check(f"post-quantum roots {path}", partial(read_pq_bundles, path))
