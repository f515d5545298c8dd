"""Reads the facts of a machine without Kubernetes. What cannot be read is kept as the error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svc.checks.local import LocalFacts, PqFacts, ProcessFacts, SvidFacts
from svc.cli.errors import StatusUnavailable, StatusUnreachable
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.output import Console
from svc.cli.status.addresses import AdminAddress
from svc.cli.status.document import parse_status
from svc.cli.status.fetch import fetch
from svc.errors import SvcError


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """
    What is checked of this machine.

    Args:
        addresses: where processes are asked.
        named: whether the user named them; else that nothing listens at one is no finding.
        pq_bundle: the PQ bundle file; None for that of the environment, or beside the socket.
    """

    addresses: Sequence[AdminAddress]
    named: bool
    options: GlobalOptions
    pq_bundle: str | None = None


def read_local(plan: LocalPlan, invocation: Invocation) -> LocalFacts:
    """Read the facts."""
    processes = [_process(each, named=plan.named) for each in plan.addresses]
    svid = _kept(lambda: _svid(plan.options, invocation.console))
    pq = _kept(lambda: _pq(plan, invocation.environ))
    return LocalFacts(invocation.now(), svid, pq, processes)


def _kept(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except SvcError as error:
        return error


def _process(address: AdminAddress, *, named: bool) -> ProcessFacts:
    try:
        status, _document = parse_status(fetch(address), address)
    except StatusUnavailable as error:
        return ProcessFacts(str(address), error, listens=named or not isinstance(error, StatusUnreachable))
    return ProcessFacts(str(address), status)


def _svid(options: GlobalOptions, console: Console) -> SvidFacts:
    """Ask the Workload API, in the reactor of this process."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    from svc.cli.logs import begin_logging
    from svc.cli.reactor import run_until_done
    from svc.cli.trust import LocalTrust
    from svc.envelope.profile import Profile

    begin_logging(options, console)
    trust = LocalTrust(reactor, options.spiffe_socket, Profile.CLASSICAL, None)

    async def work() -> SvidFacts:
        svid = (await trust.source()).svid
        identity = svid.spiffe_id
        return SvidFacts(str(identity), str(identity.trust_domain), svid.not_before, svid.not_after)

    return run_until_done(reactor, lambda: Deferred.fromCoroutine(work()), trust.close)


def _pq(plan: LocalPlan, environ: Mapping[str, str]) -> PqFacts:
    from svc.workload.errors import PqFileMissing
    from svc.workload.pqfile import pq_bundle_path, read_pq_bundles

    path = pq_bundle_path(plan.pq_bundle, environ, plan.options.spiffe_socket)
    if path is None:
        raise PqFileMissing(path="")
    ends = {
        str(bundle.trust_domain): max(each.not_valid_after_utc for each in bundle.certificates)
        for bundle in read_pq_bundles(path).bundle_set()
        if bundle.certificates
    }
    return PqFacts(path, ends)
