"""Tests of svc.authority.status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.config import AuthoritySettings
from svc.authority.domain import LocalDomain, make_domain
from svc.authority.report import AuthorityLog
from svc.authority.status import MAX_ENTRIES, authority_members, authority_tables, authority_totals
from svc.identity import TrustDomain
from svc.identity.pqbundle import PqBundles
from svc.pqissuer.nodes import ServedBundle
from svc.pqissuer.roots import PqRootRing
from svc.process.status import EntryStatus, IssuedCounts, NodeStatus, Status
from svc.telemetry.health import Health
from tests.authority.test_config import ENTRY, MINIMAL, PQ
from tests.workload.messages import AUTHORITY

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TTL = timedelta(hours=24)
DOMAIN = TrustDomain("example.org")
ISSUED = IssuedCounts(1, 2, 3)


def domain() -> LocalDomain:
    """A trust domain with its first keys."""
    made = make_domain(DOMAIN, algorithm="ECDSA-P256", leaf_algorithm="ECDSA-P256", ttl=TTL, random=bytes)
    made.advance(NOW)
    return made


def roots() -> PqRootRing:
    """Post-quantum roots with the first one."""
    ring = PqRootRing(DOMAIN, PqBundles(), ttl=TTL, algorithm="ML-DSA-65", random=bytes)
    ring.advance(NOW)
    return ring


class MembersTests(SynchronousTestCase):
    """:func:`authority_members`."""

    def members(self, now: datetime = NOW, settings: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
        whole = AuthoritySettings.model_validate({**MINIMAL, "entries": [ENTRY], "pqIssuer": PQ, **(settings or {})})
        return authority_members(
            whole,
            now,
            **{
                "domain": None,
                "pq": None,
                "registry": whole.registry,
                "held": (),
                "svid": None,
                "issued": ISSUED,
                "nodes": {},
                "seconds": 0.0,
                **given,
            },
        )

    def test_roots(self) -> None:
        """Each announced root has its kind and end; the successor is announced before it signs."""
        local, pq = domain(), roots()
        later = NOW + TTL / 2
        local.advance(later)
        pq.advance(later)
        found = self.members(later, domain=local, pq=pq)["roots"]
        end = NOW + TTL
        expected = [
            (kind, not_after, signs, algorithm)
            for kind, algorithm in (("x509", "ECDSA-P256"), ("jwt", None), ("pq", "ML-DSA-65"))
            for not_after, signs in ((end, True), (end + TTL / 2, False))
        ]
        self.assertEqual(expected, [(each.kind, each.not_after, each.signs, each.algorithm) for each in found])

    def test_entries(self) -> None:
        """An identity has the SVIDs of open streams, and the end of the first; two entries for it are one."""
        local = domain()
        other = {**ENTRY, "spiffeID": "spiffe://example.org/b"}
        settings = {"entries": [other, ENTRY, {**ENTRY, "uid": 2, "ttl": "2h"}]}
        registry = AuthoritySettings.model_validate({**MINIMAL, **settings}).registry
        held = [svid for entry in registry.entries[1:] for svid in local.renew((entry,), (), NOW)]
        found = self.members(settings=settings, domain=local, registry=registry, held=held)["entries"]
        hour = NOW + timedelta(hours=1)
        expected = (EntryStatus("spiffe://example.org/b", 0), EntryStatus("spiffe://example.org/a", 2, hour))
        self.assertEqual(expected, found)

    def test_many_entries(self) -> None:
        """The document holds a thousand identities at the most."""
        for count in (MAX_ENTRIES, MAX_ENTRIES + 1):
            many = [{**ENTRY, "spiffeID": f"spiffe://example.org/{number}"} for number in range(count)]
            self.assertEqual(MAX_ENTRIES, len(self.members(settings={"entries": many}, domain=domain())["entries"]))

    def test_nodes(self) -> None:
        """Nodes are shown in the order of their names with the time of the last report, at most a thousand."""
        nodes = {"b": ServedBundle(7, 10.0, 40.0), "a": ServedBundle(0, 70.0, 70.0)}
        found = self.members(nodes=nodes, seconds=100.0)["nodes"]
        ago = (NOW - timedelta(seconds=30), NOW - timedelta(minutes=1))
        self.assertEqual((NodeStatus("a", 0, ago[0]), NodeStatus("b", 7, ago[1])), found)
        for count in (MAX_ENTRIES, MAX_ENTRIES + 1):
            many = {str(number): ServedBundle(1, 0.0, 0.0) for number in range(count)}
            self.assertEqual(MAX_ENTRIES, len(self.members(nodes=many)["nodes"]))
        self.assertIsNone(self.members()["nodes"])

    def test_sockets(self) -> None:
        """The sockets that are configured, with the protocol of each."""
        pq = {**PQ, "listen": "127.0.0.1:8444"}
        listeners = self.members(settings={"pqIssuer": pq})["listeners"]
        self.assertEqual(
            [
                ("workloadApi", "grpc", "unix:///run/svc/agent.sock"),
                ("pqIssuer", "http", "unix:///run/svc/pq.sock"),
                ("pqIssuer", "http", "127.0.0.1:8444"),
            ],
            [(each.name, each.protocol, each.listen) for each in listeners],
        )

    def test_beside_another_implementation(self) -> None:
        """It has an identity of its own, and issues to nobody by entries."""
        svid = AUTHORITY.svid("/issuer")
        members = self.members(pq=roots(), svid=svid)
        self.assertIsNone(members["entries"])
        [identity] = members["identities"]
        self.assertEqual((str(svid.spiffe_id), svid.not_before), (identity.spiffe_id, identity.not_before))

    def test_tables(self) -> None:
        """The web page has a table of roots and one of identities, the latter only where it serves a trust domain."""
        health = Health((), now=lambda: NOW)
        base: dict[str, Any] = {"process": "authority", "version": "1", "pid": 1, "started": NOW, "now": NOW}
        base |= {"ready": True, "draining": False, "conditions": health.conditions}
        whole = authority_tables(Status(**base, **self.members(domain=domain(), pq=roots())))
        self.assertEqual(["Roots", "Issues to"], [each.title for each in whole])
        self.assertEqual(("post-quantum", "ML-DSA-65", "signs", "2026-11-22T12:00:00Z"), whole[0].rows[2])
        issuer = authority_tables(Status(**base, **self.members(pq=roots())))
        self.assertEqual(["Roots"], [each.title for each in issuer])
        nodes = {"n1": ServedBundle(7, 0.0, 0.0)}
        issuer = authority_tables(Status(**base, **self.members(pq=roots(), nodes=nodes)))
        self.assertEqual("Post-quantum roots of nodes", issuer[1].title)
        self.assertEqual((7, "2026-11-21T12:00:00Z"), issuer[1].rows[0][1:])


class TotalsTests(SynchronousTestCase):
    """:func:`authority_totals`."""

    def test_requests(self) -> None:
        """Whatever was issued or refused is a request."""
        log = AuthorityLog(Clock().seconds)
        log.issued = ISSUED
        log.refusals.update({"permission_denied": 4})
        totals = authority_totals(log)
        self.assertEqual((10, 4, {"permission_denied": 4}), (totals.requests, totals.refusals, totals.denials))
