"""What is wrong with identities on a machine without Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from svc.checks.model import CLOCK_LIMIT, Check, Defect, Found, Level, ago, clock_difference, found, read
from svc.errors import SvcError
from svc.process.status import Status

#: The part of an SVID's life that is left when its server should have renewed it: that happens at half of it.
_RENEWED: Final = 0.2


@dataclass(frozen=True, slots=True)
class SvidFacts:
    """An SVID of this user."""

    spiffe_id: str
    trust_domain: str
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class PqFacts:
    """
    The PQ bundle file.

    Args:
        ends: by trust domain, when the last of its roots ends.
    """

    path: str
    ends: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """
    What answers, or should, at an address for operators.

    Args:
        address: ``host:port``.
        listens: whether something listens there.
    """

    address: str
    status: Status | SvcError
    listens: bool = True


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """What was read of this machine; times by its clock, aware."""

    now: datetime
    svid: SvidFacts | SvcError
    pq: PqFacts | SvcError
    processes: Sequence[ProcessFacts]

    @property
    def statuses(self) -> list[tuple[str, Status]]:
        """Name and status of each process that answers."""
        return [
            (f"svc-{each.status.process} at {each.address}", each.status)
            for each in self.processes
            if isinstance(each.status, Status)
        ]


def _socket(facts: LocalFacts) -> list[Found]:
    read(facts.svid)
    return []


def _svid(facts: LocalFacts) -> Iterator[Found]:
    if isinstance(facts.svid, SvcError):
        yield found("none")
        return
    svid, now = facts.svid, facts.now
    left = svid.not_after - now
    if left <= timedelta():
        yield found("expired", spiffe_id=svid.spiffe_id, age=ago(svid.not_after, now))
    elif svid.not_before - now > timedelta():
        yield found("not_yet", spiffe_id=svid.spiffe_id, begins=f"{svid.not_before:%Y-%m-%dT%H:%M:%SZ}")
    elif left < (svid.not_after - svid.not_before) * _RENEWED:
        yield found("ending", spiffe_id=svid.spiffe_id, left=ago(now, svid.not_after))


def _pq(facts: LocalFacts) -> Iterator[Found]:
    pq = read(facts.pq)
    for domain, ends in pq.ends.items():
        if ends <= facts.now:
            yield found("expired", path=pq.path, domain=domain, age=ago(ends, facts.now))
    if not isinstance(facts.svid, SvcError) and facts.svid.trust_domain not in pq.ends:
        yield found("not_own", path=pq.path, domain=facts.svid.trust_domain, known=", ".join(sorted(pq.ends)) or "none")


def _processes(facts: LocalFacts) -> Iterator[Found]:
    if not any(each.listens for each in facts.processes):
        yield found("none", addresses=", ".join(each.address for each in facts.processes))
    for each in facts.processes:
        if each.listens and isinstance(each.status, SvcError):
            yield found("no_status", why=each.status)
    for name, status in facts.statuses:
        if status.draining:
            yield found("draining", name=name)
        elif not status.ready:
            wrong = [each for each in status.conditions if not each.holds]
            why = "; ".join(f"{each.name}: {each.message or each.reason}" for each in wrong) or "no condition says why"
            yield found("not_ready", name=name, why=why)


def _credentials(facts: LocalFacts) -> Iterator[Found]:
    for name, status in facts.statuses:
        for identity in status.identities[:1]:
            about = {"name": name, "spiffe_id": identity.spiffe_id}
            if identity.not_after <= facts.now:
                yield found("expired", age=ago(identity.not_after, facts.now), **about)
            if identity.pq_not_after is not None and identity.pq_not_after <= facts.now:
                yield found("pq_expired", age=ago(identity.pq_not_after, facts.now), **about)
        if status.store is not None and not status.store.writable:
            yield found("store", name=name, path=status.store.path, why=status.store.trouble or "not known")


def _authority(facts: LocalFacts) -> Iterator[Found]:
    for name, status in facts.statuses:
        for kind in sorted({each.kind for each in status.roots or ()}):
            signing = [each for each in status.roots or () if each.kind == kind and each.signs]
            if not any(each.not_after > facts.now for each in signing):
                yield found("no_root", name=name, kind=kind)


def _clock(facts: LocalFacts) -> Iterator[Found]:
    if not isinstance(facts.svid, SvcError) and facts.svid.not_before - facts.now > CLOCK_LIMIT:
        yield found("behind_svid", seconds=round((facts.svid.not_before - facts.now).total_seconds()))
    for name, status in facts.statuses:
        for code, evidence in clock_difference(facts.now - status.now):
            yield Found(code, {**evidence, "name": name})


CHECKS: Final[tuple[Check[LocalFacts], ...]] = (
    Check("workload-api", "the Workload API answers, and gives this user an identity", _socket, {}),
    Check(
        "svid",
        "the SVID is valid, and renewed in time",
        _svid,
        {
            "none": Defect("there is no SVID", "see workload-api"),
            "expired": Defect(
                "the SVID of {spiffe_id} ended {age} ago", "is the clock here right? else look at the log of its server"
            ),
            "not_yet": Defect("the SVID of {spiffe_id} begins at {begins}", "the clock here is behind: synchronize it"),
            "ending": Defect(
                "the SVID of {spiffe_id} ends in {left}, and was not renewed",
                "look at the log of svc-authority or of the SPIRE agent: it renews at half of the life",
                Level.WARNING,
            ),
        },
    ),
    Check(
        "pq-bundle",
        "the PQ bundle file has valid roots",
        _pq,
        {
            "expired": Defect(
                "all post-quantum roots of {domain} in {path} have ended, the last one {age} ago",
                "svc-authority writes the file: does it run, and is this the file that it writes?",
            ),
            "not_own": Defect(
                "{path} has no post-quantum roots of the own trust domain {domain}; it has: {known}",
                "is it the right file? SVC_PQ_BUNDLE names another one",
            ),
        },
    ),
    Check(
        "processes",
        "the processes of this machine are ready",
        _processes,
        {
            "none": Defect(
                "no proxy, broker or authority answers at {addresses}",
                "start one; svc status --config FILE shows one with another adminAddr",
                Level.WARNING,
            ),
            "no_status": Defect("{why}", "another service may have its port: adminAddr of a configuration changes it"),
            "draining": Defect(
                "{name} is draining: it takes no new connections", "a drain is final: start it anew", Level.WARNING
            ),
            "not_ready": Defect("{name} is not ready: {why}", "svc status shows its last error; its log says more"),
        },
    ),
    Check(
        "credentials",
        "the processes have valid credentials and can write their records",
        _credentials,
        {
            "expired": Defect(
                "the SVID {spiffe_id} of {name} ended {age} ago", "its Workload API does not renew it: see its log"
            ),
            "pq_expired": Defect(
                "the post-quantum leaf {spiffe_id} of {name} ended {age} ago",
                "its issuer does not renew it: see the log of both",
            ),
            "store": Defect(
                "{name} cannot write its database {path}: {why}", "free some space, and look at the owner of the file"
            ),
        },
    ),
    Check(
        "authority",
        "the authorities of this machine have roots that sign",
        _authority,
        {
            "no_root": Defect(
                "{name} has no valid root of the kind {kind} that signs", "look at its log: it makes a new one in time"
            )
        },
    ),
    Check(
        "clock",
        "the clock agrees with the SVID and the processes",
        _clock,
        {
            "behind_svid": Defect(
                "the clock of this machine is {seconds} s behind the begin of its SVID", "synchronize it with NTP"
            ),
            "off": Defect(
                "the clock of this command is {seconds} s {where} that of {name}",
                "synchronize the machine, or the container, with NTP",
            ),
            "drifting": Defect(
                "the clock of this command is {seconds} s {where} that of {name}",
                "synchronize the machine, or the container, with NTP",
                Level.WARNING,
            ),
        },
    ),
)
