"""
Leader election: of several replicas the one that holds a Lease works.

The rules are those of client-go, with which other holders of the Lease can be programs of any language. A leader that
cannot renew has ended its work before another replica may begin, since ``deadline`` is shorter than ``duration``; a
leader that ends releases the Lease. Times of others are never compared with the own clock: a Lease has expired when it
was not seen to change for its duration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from svc.errors import SvcError
from svc.kube.client import Client, Object
from svc.kube.errors import Conflict, KubernetesError, NotFound
from svc.kube.kinds import Kind
from svc.kube.times import to_micro_time

LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
#: Seconds for which a Lease holds without being renewed, seconds after which a leader gives up, between renewals, and
#: between attempts of a replica that waits: a release is followed within this time.
DURATION: Final = 15
DEADLINE: Final = 10.0
RENEWAL: Final = 2.0
WAITING: Final = 0.7
#: How long the end of a leader waits for its release.
RELEASE_SECONDS: Final = 2.0


class LeaseLost(SvcError):
    """the Lease {name} is not held any more: {detail}"""

    reason = "lease_lost"
    hint = "another replica takes over; where no other one does, look at the API server"


class Elector:
    """
    Takes part in the election by one Lease.

    Args:
        namespace: of the Lease.
        name: of the Lease.
        identity: of this replica; another one after each start.
        now: the time, aware, which is written for people.
        failed: receives each failed attempt; one where another replica was faster is none.
        duration: whole seconds.
        deadline: less than the duration.
        renewal: less than the deadline.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        now: Callable[[], datetime],
        failed: Callable[[SvcError], object],
        *,
        duration: int = DURATION,
        deadline: float = DEADLINE,
        renewal: float = RENEWAL,
        waiting: float = WAITING,
    ) -> None:
        if not identity or not renewal < deadline < duration:
            raise ValueError("an identity, and renewal < deadline < duration")
        self._client = client
        self._metadata = {"namespace": namespace, "name": name}
        self._identity = identity
        self._now = now
        self._failed = failed
        self._duration = duration
        self._deadline = deadline
        self._renewal = renewal
        self._waiting = waiting
        #: What was last seen of the Lease, and when, by the clock of the loop.
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        #: Whether the Lease may be that of this replica.
        self._wrote = False

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """
        Wait for the Lease, then work until the work or this call ends, and release the Lease.

        Args:
            work: is cancelled when the Lease is lost, and has to end at once.

        Raises:
            LeaseLost: it could not be renewed before the deadline, or another replica holds it.
        """
        working: asyncio.Future[object] | None = None
        try:
            renewed = await self._acquired()
            working = asyncio.ensure_future(work())
            await self._hold(renewed, working)
        except LeaseLost:
            self._wrote = False
            raise
        finally:
            if working is not None:
                await _ended(working)
            if self._wrote:
                await self._release()
        working.result()

    async def _acquired(self) -> float:
        """Return when the attempt began that made this replica the leader."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if await self._attempt():
                return began
            await asyncio.sleep(self._waiting)

    async def _hold(self, renewed: float, working: asyncio.Future[object]) -> None:
        """Renew until the work ends."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                # Counted from before the request: another replica counts from its receipt at the earliest.
                async with asyncio.timeout_at(renewed + self._deadline):
                    await asyncio.wait((working,), timeout=self._renewal)
                    if working.done():
                        return
                    began = loop.time()
                    held = await self._attempt()
                if held is False:
                    raise LeaseLost(name=self._metadata["name"], detail="another replica holds it")
                if held:
                    renewed = began
        except TimeoutError as error:
            raise LeaseLost(name=self._metadata["name"], detail=f"not renewed for {self._deadline:g} s") from error

    async def _attempt(self) -> bool | None:
        """Take or renew the Lease; false where another replica holds it, None where that is not known."""
        try:
            # A connection to a server that is gone must not take all the time that there is.
            async with asyncio.timeout(self._deadline / 2):
                return await self._taken()
        except Conflict:
            return None
        except TimeoutError:
            self._failed(self._client.unreachable(f"the Lease {self._metadata['name']} is not renewed"))
        except KubernetesError as error:
            self._failed(error)
        return None

    async def _taken(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._metadata["name"], self._metadata["namespace"])
        except NotFound:
            self._wrote = True
            await self._client.create(LEASES, self._lease({"metadata": self._metadata}))
            return True
        if not self._is_free(lease.get("spec") or {}):
            return False
        self._wrote = True
        await self._client.replace(LEASES, self._lease(lease))
        return True

    def _is_free(self, spec: Object) -> bool:
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        now = asyncio.get_running_loop().time()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration: int = spec.get("leaseDurationSeconds") or self._duration
        return holder in ("", self._identity) or now >= self._seen_at + duration

    def _lease(self, lease: Object) -> Object:
        """Return the Lease as this replica holds it."""
        spec = dict(lease.get("spec") or {})
        now = to_micro_time(self._now())
        if spec.get("holderIdentity") != self._identity:
            spec |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", -1) + 1}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": self._duration, "renewTime": now}
        return {**lease, "apiVersion": LEASES.api_version, "kind": LEASES.name, "spec": spec}

    async def _release(self) -> None:
        """Let another replica take the Lease at once; where that fails, it has to wait until the Lease expires."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self._client.get(LEASES, self._metadata["name"], self._metadata["namespace"])
                if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    released = {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.replace(LEASES, {**lease, "spec": {**lease["spec"], **released}})
        except Conflict:
            return
        except TimeoutError:
            self._failed(self._client.unreachable(f"the Lease {self._metadata['name']} is not released"))
        except KubernetesError as error:
            self._failed(error)


async def _ended(working: asyncio.Future[object]) -> None:
    working.cancel()
    await asyncio.wait((working,))
    if not working.cancelled():
        # Seen, so that it is not reported as lost.
        working.exception()
