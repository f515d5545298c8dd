"""
The controller of peers: it fetches the package of each ``SvcForeignCluster`` when its refresh hint says so, and writes
the bundle that is pinned to the SPIRE server.

A peer is reached by HTTPS at its endpoint and verified by the pinned bundle before anything is read of it. The first
package of a peer that is known by its fingerprint alone is fetched from a server that nobody can verify yet; it is the
fingerprint that verifies the package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.errors import SvcError, printable
from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.succession import needed_links
from svc.identity import X509Svid
from svc.identity.bundle import BundleSet
from svc.identity.matchers import ExactID
from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.errors import Conflict, NotFound
from svc.kube.kinds import FOREIGN_CLUSTERS
from svc.kube.status import apply_status, with_condition
from svc.kube.times import to_time
from svc.manager.context import ClusterContext, ClusterSpire
from svc.manager.federation.foreign import PublishedRoots, RootsTooLarge, published_roots
from svc.manager.federation.peers import (
    Judged,
    Pinned,
    PinnedReader,
    Served,
    awaits_package,
    duplicates,
    endpoint_of,
    judge,
    peer_status,
    pin,
    reason_word,
)
from svc.manager.federation.writer import BundleWriter
from svc.naming import MAX_FOREIGN_PQ
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit
from svc.transport.addresses import TcpAddress
from svc.transport.certificates import UnverifiedClientCreator
from svc.transport.endpoints import TlsClientEndpoint
from svc.workload.control_plane import ControlPlane, HttpServer

#: Peers that are asked at the same time.
MAX_POLLS: Final = 8
#: Seconds to connect, and for a whole poll with all packages on the way.
CONNECT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 60.0
#: Seconds between two polls of a peer, at least, whatever its refresh hint.
SHORTEST: Final = 10.0
#: Seconds between two attempts to fetch the first package of a peer.
BOOTSTRAP_SECONDS: Final = 30.0
#: Where a peer serves its package, as long as no package of it says where.
_BOOTSTRAP_PATH: Final = "/v1/bootstrap-package"
#: Share of the refresh hint by which polls of managers are spread.
JITTER: Final = 0.1
#: Seconds until peers are looked at again at the latest: clocks may be set.
_AT_LATEST: Final = 60.0

#: Conditions without which a peer is not ready, in the order in which they are reported.
_NEEDED: Final = ("FingerprintMatched", "ContinuityVerified", "BundleSynced")

_Condition: TypeAlias = tuple[Literal["True", "False"], str, str]


class PeerUnavailable(SvcError):
    """the peer {trust_domain} does not answer at {address}: {detail}"""

    reason = "peer_unavailable"
    hint = "is spec.m2mEndpoint right, can the pods of svc-manager connect to it, and is SvcCluster of the peer ready?"


@dataclass(frozen=True)
class _Identity:
    """The own SVID, and the bundle of one peer alone."""

    svid: X509Svid
    bundles: BundleSet


class _Known(NamedTuple):
    """What the last poll of a peer has brought, and when the next one is due."""

    served: Served
    judged: Judged
    next_poll: datetime


class _Refused(NamedTuple):
    """What an attempt to fetch the first package has brought, why it was not pinned, and when the next one is due."""

    spec: Object
    served: Served
    error: SvcError | None
    next_attempt: datetime


class BundleExchangeController:
    """
    Pins and polls peers, and gives their bundles to SPIRE, where this replica leads.

    Args:
        reactor: the asyncio reactor.
        random: returns a number of 0 to 1.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "bundle-exchange"

    def __init__(
        self,
        context: ClusterContext,
        spire: ClusterSpire,
        reactor: Any,
        random: Callable[[], float],
        changed: Callable[[], object],
    ) -> None:
        self._client = context.client
        self._trust_domain = context.trust_domain
        self._now = context.now
        self._metrics = context.metrics
        self._reactor = reactor
        self._random = random
        self._peers = context.cache(FOREIGN_CLUSTERS, self._peers_changed)
        self._changed = changed
        self._pinned = PinnedReader()
        self._followed: Mapping[str, tuple[object, ...]] = {}
        self._roots: PublishedRoots | None = None
        self._spire = spire
        self._every = spire.settings.every
        self._bundles = BundleWriter(spire.server(), self._trust_domain, self._metrics)
        #: By the UID of the object.
        self._known: dict[str, _Known] = {}
        self._refused: dict[str, _Refused] = {}
        self._polls = asyncio.Semaphore(MAX_POLLS)

    @property
    def caches(self) -> Sequence[Cache]:
        """What it follows."""
        return (self._peers,)

    @property
    def roots(self) -> PublishedRoots | None:
        """The post-quantum roots of all peers, on every replica; None as long as the peers are not known."""
        if self._roots is None and self._peers.synced.is_set():
            self._roots = published_roots(self._peers.objects.values(), self._trust_domain, self._pinned.read)
        return self._roots

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> float:
        """
        Poll the peers that are due, and write their bundles and status.

        Returns:
            Seconds until the next one is due, or SPIRE is asked again: it may have lost its data.

        Raises:
            CredentialsMissing: the manager has no SVID yet, and asks nobody.
            SvcError: a bundle or a status was not written; those of the others were.
        """
        try:
            failure = await self._bundles.read({each["spec"]["trustDomain"] for each in self._peers.objects.values()})
            due = await self._all_kept()
        finally:
            self._bundles.close()
        if failure is not None:
            raise failure
        roots = self.roots
        if roots is not None and roots.left_out:
            raise RootsTooLarge(left_out=", ".join(roots.left_out), limit=MAX_FOREIGN_PQ)
        return min(due, self._every)

    def _peers_changed(self) -> None:
        """The status of a peer is written at each poll; what is asked for and what is pinned are rarely others."""
        followed = {each["metadata"]["uid"]: _followed(each) for each in self._peers.objects.values()}
        if followed != self._followed or not self._peers.synced.is_set():
            self._followed, self._roots = followed, None
            self._pinned.keep(followed.keys())
            self._changed()

    async def _all_kept(self) -> float:
        """Bring all peers forward; returns the seconds until the next one is due."""
        found = list(self._peers.objects.values())
        if not found:
            self._known, self._refused = {}, {}
            return _AT_LATEST
        svid, others = self._spire.source.svid, duplicates(found)
        uids = {each["metadata"]["uid"] for each in found}
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}
        self._refused = {uid: each for uid, each in self._refused.items() if uid in uids}
        results = await asyncio.gather(
            *(self._kept(each, svid, others.get(each["metadata"]["uid"])) for each in found), return_exceptions=True
        )
        for each in results:
            if isinstance(each, BaseException) and not isinstance(each, Conflict | NotFound):
                raise each
        now = self._now()
        due = [each.next_poll for each in self._known.values()]
        due += [each.next_attempt for each in self._refused.values()]
        return min([_AT_LATEST, *(max(1.0, (each - now).total_seconds()) for each in due)])

    async def _kept(self, found: Object, svid: X509Svid, refused: SvcError | None) -> None:
        """Bring one peer forward."""
        now, uid = self._now(), found["metadata"]["uid"]
        former = self._pinned.read(found)
        pinned: Pinned | None = None
        waiting: _Refused | None = None
        if refused is not None:
            self._known.pop(uid, None)
        elif awaits_package(found, former):
            waiting = self._refused.get(uid)
            if waiting is None or waiting.spec != found["spec"] or now >= waiting.next_attempt:
                pinned, waiting = await self._bootstrapped(found, former)
            if waiting is not None:
                pinned, refused = former, waiting.error
        else:
            try:
                pinned = pin(found, former, self._trust_domain, now)
            except SvcError as error:
                pinned, refused = former, error
        self._refused.pop(uid, None)
        if waiting is not None:
            self._refused[uid] = waiting
        now, known = self._now(), self._known.get(uid)
        if pinned is not None and (known is None or pinned is not former or now >= known.next_poll):
            known = await self._polled(found, pinned, svid)
        judged = None if known is None or pinned is None else known.judged
        shown = known if pinned is not None else waiting
        status = peer_status(found, judged, None if shown is None else shown.served, refused, now)
        unwritten = None if judged is None else await self._unwritten(judged)
        _complete(status, found, now, judged, unwritten)
        if known is not None:
            status["nextPoll"] = to_time(known.next_poll)
            self._known[uid] = known
        elif waiting is not None:
            status["nextPoll"] = to_time(waiting.next_attempt)
        await apply_status(self._client, FOREIGN_CLUSTERS, found, status, manager=naming.MANAGER)
        if judged is not None:
            self._metrics.kept("foreign-roots", success=unwritten is None)
            self._report(found, former, judged.pinned)
        if unwritten is not None:
            raise unwritten

    async def _unwritten(self, judged: Judged) -> SvcError | None:
        """Write the bundle that is pinned; returns why that failed."""
        try:
            await self._bundles.write(judged.pinned.package.content)
        except SvcError as error:
            return error
        return None

    async def _bootstrapped(self, found: Object, former: Pinned | None) -> tuple[Pinned | None, _Refused | None]:
        """Fetch and pin the first package of a peer, or say why it was not pinned."""
        served = await self._served(found, self._first(found))
        now, pinned = self._now(), None
        # Of a peer that is not pinned the conditions of the fetch say it.
        error = served.error if former is not None else None
        if served.package is not None:
            try:
                pinned = pin(found, former, self._trust_domain, now, served.package)
            except SvcError as refused:
                error = refused
        self._metrics.bundle_fetched(verified=pinned is not None)
        if pinned is not None:
            return pinned, None
        return None, _Refused(found["spec"], served, error, self._after(now, BOOTSTRAP_SECONDS))

    async def _served(self, found: Object, fetching: Awaitable[Served]) -> Served:
        """Wait for packages, no longer than a poll may take."""
        try:
            async with self._polls, asyncio.timeout(POLL_SECONDS):
                return await fetching
        except TimeoutError:
            return Served(error=self._unavailable(found, f"nothing came within {POLL_SECONDS:g} s"))
        except SvcError as error:
            return Served(error=error)
        except Exception as error:  # noqa: BLE001 - Twisted's client fails with errors of many kinds
            return Served(error=self._unavailable(found, printable(error) or type(error).__name__))

    def _after(self, now: datetime, seconds: float) -> datetime:
        pause = seconds * (1 + JITTER * (2 * self._random() - 1))
        return (now + timedelta(seconds=pause)).replace(microsecond=0)

    async def _polled(self, found: Object, pinned: Pinned, svid: X509Svid) -> _Known:
        served = await self._served(found, self._fetched(found, pinned.package, svid))
        now = self._now()
        judged = judge(pinned, served, now)
        self._metrics.bundle_fetched(verified=judged.error is None)
        hint = max(SHORTEST, float(judged.pinned.package.content.bundle.refresh_hint))
        return _Known(served, judged, self._after(now, hint))

    async def _first(self, found: Object) -> Served:
        """Fetch a package from whoever answers; its fingerprint has to say whose it is."""
        endpoint = endpoint_of(found, None)
        address = TcpAddress(endpoint.host, endpoint.port or naming.PORT_M2M_SERVICE)
        tls = TlsClientEndpoint(
            self._reactor, address, UnverifiedClientCreator(address.server_name), connect_timeout=CONNECT_SECONDS
        )
        server = HttpServer(tls, self._reactor, max_answer=MAX_ENVELOPE)
        try:
            return Served(await self._get(server, found, _BOOTSTRAP_PATH))
        finally:
            server.close()

    async def _fetched(self, found: Object, pinned: VerifiedPackage, svid: X509Svid) -> Served:
        content = pinned.content
        server = ControlPlane(
            str(endpoint_of(found, pinned)),
            _Identity(svid, BundleSet.of(content.bundle.roots)),
            self._reactor,
            now=self._now,
            expected=ExactID(content.m2m.spiffe_id),
            timeout=CONNECT_SECONDS,
            max_answer=MAX_ENVELOPE,
        )
        try:
            package = await self._get(server, found, content.m2m.package_path)
            links: dict[int, VerifiedPackage] = {}
            try:
                for number in needed_links(pinned, package):
                    links[number] = await self._get(server, found, f"{content.m2m.package_path}/{number}")
            except EnvelopeError:
                # The package is judged without them.
                links = {}
            return Served(package, links)
        finally:
            server.close()

    async def _get(self, server: HttpServer, found: Object, path: str) -> VerifiedPackage:
        loop = asyncio.get_running_loop()
        answer = await Deferred.fromCoroutine(server.request("GET", path)).asFuture(loop)
        if answer.code != 200:
            raise self._unavailable(found, f"status {answer.code} for {path}")
        return verify_package(answer.data)

    def _unavailable(self, found: Object, detail: str) -> PeerUnavailable:
        spec = found["spec"]
        address = spec.get("m2mEndpoint", "the endpoint of its package")
        return PeerUnavailable(trust_domain=spec["trustDomain"], address=address, detail=detail)

    def _report(self, found: Object, former: Pinned | None, pinned: Pinned) -> None:
        """Record whom we trust from now on."""
        before = None if former is None else former.package.content.fingerprint
        after = pinned.package.content.fingerprint
        if before == after:
            return
        emit(
            self.log,
            ManagerEvent.PEER_PINNED,
            attributes={
                "trust_domain": pinned.package.content.trust_domain.name,
                "name": found["metadata"]["name"],
                "fingerprint": after.grouped,
                "former_fingerprint": None if before is None else before.grouped,
                "sequence": pinned.package.content.sequence,
                "rebootstrap": former is not None and former.token != pinned.token,
            },
        )


def _followed(found: Object) -> tuple[object, ...]:
    """What a change of an object is looked at for."""
    metadata, pinned = found["metadata"], (found.get("status") or {}).get("pinned") or {}
    return metadata.get("generation"), metadata.get("deletionTimestamp"), pinned.get("data")


def _complete(
    status: dict[str, Any], found: Object, now: datetime, judged: Judged | None, unwritten: SvcError | None
) -> None:
    """Add the conditions that are of more than a poll."""
    generation = found["metadata"].get("generation", 0)
    conditions = with_condition(
        status["conditions"], "BundleSynced", *_synced(judged, unwritten), now, generation=generation
    )
    status["conditions"] = with_condition(conditions, "Ready", *_ready(conditions), now, generation=generation)


def _synced(judged: Judged | None, unwritten: SvcError | None) -> _Condition:
    if judged is None:
        return "False", "NotPinned", "nothing is pinned"
    if unwritten is not None:
        return "False", reason_word(unwritten), str(unwritten)
    return "True", "Written", "the SPIRE server has the bundle that is pinned"


def _ready(conditions: Sequence[Object]) -> _Condition:
    by_type = {each["type"]: each for each in conditions}
    missing = next((each for each in map(by_type.__getitem__, _NEEDED) if each["status"] != "True"), None)
    if missing is not None:
        return "False", missing["reason"], missing["message"]
    return "True", "Federated", "the peer is pinned, and SPIRE has its bundle"
