"""The release of Helm that is on the cluster, and what follows from it for an installation. Pure."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, Final

from svc.install.deployment.errors import DeploymentError
from svc.naming import DEFAULT_NAMESPACE

#: Octets of a release, unpacked; etcd takes no object above 1.5 MiB.
_MOST: Final = 32 << 20
#: Selects the Secrets of Helm.
LABELS: Final = "owner=helm,name=svc-core"
_DEPLOYED: Final = ("deployed", "superseded")
_PENDING: Final = ("pending-install", "pending-upgrade", "pending-rollback")
_SEMANTIC: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")


@dataclass(frozen=True, slots=True)
class Existing:
    """
    The newest revision of the release.

    Args:
        status: such as ``deployed``, as Helm names it.
        version: of the chart.
        values: those that were given to it.
        deployed: the newest revision that was ready once; 0 for none.
        since: when its status was written.
    """

    revision: int
    status: str
    version: str
    values: dict[str, Any]
    deployed: int
    since: datetime


class Step(Enum):
    """What is to be done."""

    INSTALL = auto()
    UPGRADE = auto()
    #: An upgrade was cut off: back to what was there before it, then the upgrade.
    ROLL_BACK_AND_UPGRADE = auto()


def read_existing(secrets: Sequence[dict[str, Any]]) -> Existing | None:
    """
    Read the Secrets of the release; None where there is none.

    Raises:
        DeploymentError: ``release_unreadable``.
    """
    if not secrets:
        return None
    try:
        labels = [secret["metadata"]["labels"] for secret in secrets]
        newest = max(range(len(secrets)), key=lambda each: int(labels[each]["version"]))
        packed = base64.b64decode(base64.b64decode(secrets[newest]["data"]["release"], validate=True), validate=True)
        with gzip.open(io.BytesIO(packed)) as file:
            release = json.loads(file.read(_MOST))
        return Existing(
            int(labels[newest]["version"]),
            str(release["info"]["status"]),
            str(release["chart"]["metadata"]["version"]),
            release.get("config") or {},
            max((int(each["version"]) for each in labels if each.get("status") in _DEPLOYED), default=0),
            datetime.fromtimestamp(int(labels[newest]["modifiedAt"]), UTC)
            if "modifiedAt" in labels[newest]
            else datetime.fromisoformat(secrets[newest]["metadata"]["creationTimestamp"]),
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError, binascii.Error) as error:
        raise DeploymentError("release_unreadable", defect=f"{error!r}", namespace=DEFAULT_NAMESPACE) from error


def decide(
    existing: Existing | None,
    target: str,
    now: datetime,
    *,
    upgrade: bool,
    named: bool,
    timeout: float,
    oldest: str = "",
) -> Step:
    """
    Decide what an installation has to do.

    Args:
        target: the version of the chart.
        upgrade: whether ``--upgrade`` was given.
        named: whether the version was named, which alone lets an older one follow a newer one.
        timeout: seconds after which a release that is pending counts as cut off.
        oldest: the version from which on the target can be reached; empty for any.

    Raises:
        DeploymentError: nothing may be done.
    """
    if existing is None:
        if upgrade:
            raise DeploymentError("release_absent", namespace=DEFAULT_NAMESPACE)
        return Step.INSTALL
    since = existing.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if existing.status in _PENDING and not (upgrade and (now - existing.since).total_seconds() > timeout):
        raise DeploymentError("release_pending", status=existing.status, since=since, timeout=f"{timeout:.0f} s")
    if existing.status == "uninstalling":
        raise DeploymentError("release_uninstalling", since=since, namespace=DEFAULT_NAMESPACE)
    if existing.status == "pending-install":
        raise DeploymentError("release_pending_install", since=since, namespace=DEFAULT_NAMESPACE)
    if existing.status == "uninstalled" or not existing.deployed:
        # A first installation that failed is repeated; there is nothing to be kept.
        return Step.INSTALL
    if not upgrade:
        raise DeploymentError("release_there", installed=existing.version, target=target)
    if older(target, existing.version) and not named:
        raise DeploymentError("downgrade", installed=existing.version, target=target)
    if older(existing.version, oldest):
        raise DeploymentError("upgrade_too_far", installed=existing.version, target=target, oldest=oldest)
    return Step.ROLL_BACK_AND_UPGRADE if existing.status in _PENDING else Step.UPGRADE


def older(version: str, than: str) -> bool:
    """Whether a semantic version comes before another one (section 11); false where one of them is none."""
    one, other = _ordered(version), _ordered(than)
    return one is not None and other is not None and one < other


def _ordered(text: str) -> tuple[tuple[int, int, int], bool, list[tuple[bool, int, str]]] | None:
    match = _SEMANTIC.fullmatch(text)
    if match is None:
        return None
    parts = [
        (False, int(each), "") if each.isdigit() else (True, 0, each) for each in (match[4] or "").split(".") if each
    ]
    return (int(match[1]), int(match[2]), int(match[3])), match[4] is None, parts
