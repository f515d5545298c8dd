"""``svc license status``: reads what the manager says about licenses, and whether that is current."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from svc import naming
from svc.cli.cluster import choose, on_cluster
from svc.cli.documents import document_text
from svc.cli.errors import CliError
from svc.cli.globals import Invocation
from svc.cli.license.clusterreport import status_report
from svc.cli.license.report import distance

if TYPE_CHECKING:
    from svc.kube.client import Client

#: The manager writes the status at least each minute.
STALE: Final = timedelta(minutes=3)
#: Members that are times, of the status, of its next change and of each license.
TIMES: Final = ("observedTime", "notBefore", "notAfter", "graceUntil", "maintenanceUntil", "time")


class _Found(NamedTuple):
    """The status as it was read, why no manager holds the Lease, and why that is not known."""

    status: dict[str, Any]
    defect: str = ""
    unknown: str = ""


def run_status(output: str, named: tuple[str, str], invocation: Invocation) -> int:
    """
    Carry out ``svc license status``; returns the exit status 0.

    Args:
        named: the kubeconfig and the context of the flags.

    Raises:
        CommandFailed: there is no status, or the cluster refused.
        CliError: the status was printed and is not current, or the client of Kubernetes is not installed.
        CompartmentError, KubernetesError: there is no cluster.
    """
    console = invocation.console
    choice = choose(*named, invocation.environ, changes=False)
    found, cluster = on_cluster(partial(_read, invocation=invocation), choice)
    now = invocation.now()
    problem = _problem(found, now)
    if output == "table":
        console.write_text(status_report(_with_times(found.status), cluster, now))
    else:
        document = {
            "cluster": {"server": cluster.server, "context": cluster.context or None},
            "problem": None if problem is None else problem.reason,
            "status": found.status,
        }
        console.write_text(document_text(document, output))
    if found.unknown:
        console.warn(f"whether a manager runs is not known: {found.unknown}")
    if problem is not None:
        raise problem
    return 0


async def _read(client: Client, invocation: Invocation) -> _Found:
    from svc.kube.errors import KubernetesError, NotFound
    from svc.kube.kinds import LICENSE_STATUS_NAME, LICENSE_STATUSES

    try:
        status = (await client.get(LICENSE_STATUSES, LICENSE_STATUS_NAME)).get("status")
    except NotFound as error:
        raise _missing(f"there is no {LICENSE_STATUSES.name} {LICENSE_STATUS_NAME}") from error
    if not status:
        raise _missing(f"the {LICENSE_STATUSES.name} {LICENSE_STATUS_NAME} has none yet")
    try:
        return _Found(status, await _lease_defect(client, invocation))
    except KubernetesError as error:
        # Who may read the status need not be allowed to read the Lease.
        if error.reason != "kubernetes_forbidden":
            raise
        return _Found(status, unknown=str(error))


async def _lease_defect(client: Client, invocation: Invocation) -> str:
    """
    Return why no manager holds the Lease, nothing where one does.

    A Lease that seems to be free is read once more after a renewal was due: a successor may be taking it, and the clock
    of this machine is not that of the manager.
    """
    import asyncio

    from svc.kube.election import LEASES, RENEWAL
    from svc.kube.errors import NotFound

    seen: dict[str, Any] = {}
    defect = ""
    for attempt in range(2):
        try:
            lease = (await client.get(LEASES, naming.MANAGER, naming.DEFAULT_NAMESPACE)).get("spec") or {}
        except NotFound:
            lease = {}
        renewed = attempt and lease.get("holderIdentity") and lease.get("renewTime") != seen.get("renewTime")
        defect = "" if renewed else lease_defect(lease, invocation.now())
        if not defect or attempt:
            break
        seen = lease
        await asyncio.sleep(RENEWAL + 1)
    return defect


def lease_defect(lease: dict[str, Any], now: datetime) -> str:
    """Return why nobody holds a Lease with this ``spec`` at a time, nothing where somebody does."""
    from svc.kube.election import DURATION
    from svc.kube.times import from_time

    if not lease:
        return "is not there"
    renewed = from_time(lease.get("renewTime"))
    if not lease.get("holderIdentity") or renewed is None:
        return "is held by nobody"
    if now >= renewed + timedelta(seconds=lease.get("leaseDurationSeconds") or DURATION):
        return f"has expired, it was renewed {distance(renewed, now)}"
    return ""


def _problem(found: _Found, now: datetime) -> CliError | None:
    from svc.kube.times import from_time

    observed = from_time(found.status.get("observedTime"))
    if found.defect:
        lease = f"{naming.DEFAULT_NAMESPACE}/{naming.MANAGER}"
        return CliError("manager_away", lease=lease, defect=found.defect, namespace=naming.DEFAULT_NAMESPACE)
    if observed is None or now - observed > STALE:
        return CliError("license_status_stale", age="never" if observed is None else distance(observed, now))
    return None


def _missing(detail: str) -> CliError:
    return CliError("license_status_missing", detail=detail, namespace=naming.DEFAULT_NAMESPACE)


def _with_times(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status with its times as such; what is none stays a text."""
    from svc.kube.times import from_time

    shown = copy.deepcopy(status)
    for part in (shown, shown.get("nextChange") or {}, *(shown.get("licenses") or ())):
        for name in TIMES:
            if name in part:
                part[name] = from_time(part[name]) or part[name]
    return shown
