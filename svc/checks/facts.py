"""The facts of a cluster: what was read, or the error by which it could not be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from svc.checks.model import Check, Defect, Found, Level, clock_difference, found, read
from svc.errors import SvcError
from svc.kube.kinds import Kind
from svc.naming import DEFAULT_NAMESPACE

Object: TypeAlias = Mapping[str, Any]


class Right(NamedTuple):
    """One thing that a user may or may not do; in all namespaces where it names none."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" in the namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """
    What the API server says of itself.

    Args:
        version: the document of ``/version``.
        ahead: by how much the clock of this machine is ahead of that of the server, to the second; None where the
            server does not say its time.
    """

    version: Object
    ahead: timedelta | None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """
    What was read of a cluster.

    Args:
        now: aware, by the clock of this machine.
        objects: by kind; of pods those of enabled namespaces, of workloads those of ``namespace``.
        missing_rights: which of the rights that were asked about the user has not.
        authorities: certificates of the webhook's authorities in their Secret, PEM; none where there is no Secret.
        namespace: of the installation.
    """

    now: datetime
    server: ServerFacts | SvcError
    objects: Mapping[Kind, Sequence[Object] | SvcError]
    missing_rights: Sequence[Right] | SvcError = ()
    authorities: Sequence[str] | SvcError = ()
    namespace: str = DEFAULT_NAMESPACE

    def of(self, kind: Kind) -> Sequence[Object]:
        """Return the objects of a kind, or raise the error by which they could not be read."""
        return read(self.objects[kind])

    def named(self, kind: Kind, name: str) -> Object | None:
        """Return one object by its name; None where it is not there."""
        return next((each for each in self.of(kind) if each["metadata"]["name"] == name), None)


def metadata(item: Object, member: str) -> Mapping[str, str]:
    """Return the ``labels`` or ``annotations`` of an object."""
    return item["metadata"].get(member) or {}


def conditions(item: Object) -> Mapping[str, Object]:
    """Return the conditions of an object by their types."""
    return {each["type"]: each for each in (item.get("status") or {}).get("conditions") or ()}


def holds(item: Object, condition: str) -> bool:
    """Whether a condition of an object is true."""
    return conditions(item).get(condition, {}).get("status") == "True"


def _answers(facts: ClusterFacts) -> list[Found]:
    read(facts.server)
    return []


def _clock(facts: ClusterFacts) -> list[Found]:
    ahead = read(facts.server).ahead
    return [found("unknown")] if ahead is None else clock_difference(ahead)


API_SERVER: Check[ClusterFacts] = Check("api-server", "the API server answers", _answers, {}, stops=True)
CLOCK: Check[ClusterFacts] = Check(
    "clock",
    "the clock of this machine is that of the API server",
    _clock,
    {
        "off": Defect(
            "the clock of this machine is {seconds} s {where} that of the API server",
            "synchronize both with NTP: certificates are refused by clocks that differ",
        ),
        "drifting": Defect(
            "the clock of this machine is {seconds} s {where} that of the API server",
            "synchronize both with NTP, before certificates are refused",
            Level.WARNING,
        ),
        "unknown": Defect(
            "the API server does not say its time",
            "a proxy before it removes the field Date: compare the clocks of the nodes yourself",
            Level.WARNING,
        ),
    },
)
