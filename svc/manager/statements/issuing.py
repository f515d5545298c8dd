"""Asks the API server about the pod of a caller, and signs its statement."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from svc.errors import SvcError
from svc.identity import SvidEvidence
from svc.kube.cache import Cache, run_all
from svc.kube.client import Client
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.kinds import PODS, TOKEN_REVIEWS
from svc.manager.context import ClusterContext
from svc.manager.statements.decision import Account, BoundPod, pod_facts, proved_pod
from svc.manager.statements.signing import LIFE, SigningKeys
from svc.naming import AUDIENCE_POD_TOKEN, LABEL_INJECTED
from svc.notary.facts import WorkloadFacts
from svc.notary.statement import Statement, issue_statement
from svc.strictjson import dumps

#: Callers about which the API server is asked at the same time; further ones wait.
MAX_REVIEWS: Final = 16
#: Seconds in which changes of a pod are put together.
_TOGETHER: Final = 0.05


class StatementUndecided(SvcError):
    """whether a workload gets a statement is not known: {detail}"""

    reason = "statement_undecided"
    hint = "the API server decides on tokens: is it reachable, and may the manager make TokenReviews and read pods?"
    http_status = 503


@dataclass(frozen=True)
class IssuedStatement:
    """A statement; ``tag`` differs where facts or key differ, and not with the time."""

    statement: Statement
    tag: str


class StatementIssuer:
    """
    Issues the statements of pods.

    Args:
        context: the cluster.
        keys: returns the keys that sign; raises ``SvcError`` where there are none.
        random: returns that many secure random octets.
    """

    def __init__(
        self,
        context: ClusterContext,
        keys: Callable[[], Awaitable[SigningKeys]],
        random: Callable[[int], bytes],
    ) -> None:
        self._client: Client = context.client
        self._now: Callable[[], datetime] = context.now
        self._keys = keys
        self._random = random
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)
        self._pods: Cache = context.cache(PODS, self._changed, labels=f"{LABEL_INJECTED}=true")
        self._waiting: dict[asyncio.Event, tuple[BoundPod, str]] = {}
        self._due: asyncio.TimerHandle | None = None
        self._released = False

    async def run(self) -> None:
        """Follow the pods until cancelled: a change is what waiting callers are answered for."""
        await run_all((self._pods,))

    async def issue(
        self, token: str, account: Account, peer: SvidEvidence, *, tag: str = "", wait: float = 0.0
    ) -> IssuedStatement | None:
        """
        Issue the statement of the pod that a token proves.

        Args:
            token: a service account token; it is kept nowhere.
            account: that of the caller's identity.
            peer: the caller's verified SVID, to whose key the statement is bound.
            tag: that of the statement which the caller has.
            wait: seconds to wait until another one is due; without a change of the pod there is none.

        Returns:
            The statement, or None where after that time the caller has it.

        Raises:
            StatementDenied: see :mod:`svc.manager.statements.decision`.
            FactsInvalid: the pod has values that no statement takes.
            StatementUndecided, SigningKeysMissing: try again.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            bound = await self._proved(token, account)
            # Of now: what changes while the API server is asked is another version.
            version = self._version(bound)
            facts = await self._facts(bound, account)
            found = _tag(facts, peer)
            left = 0.0 if self._released else until - loop.time()
            if found != tag:
                return IssuedStatement(await self._signed(facts, peer), found)
            if left <= 0 or not await self._another(bound, version, left):
                return None

    def release(self) -> None:
        """Let nobody wait any more."""
        self._released = True
        for each in self._waiting:
            each.set()

    async def _proved(self, token: str, account: Account) -> BoundPod:
        spec = {"token": token, "audiences": [AUDIENCE_POD_TOKEN]}
        try:
            async with self._reviews:
                review = await self._client.create(TOKEN_REVIEWS, {"metadata": {}, "spec": spec})
        except KubernetesError as error:
            raise StatementUndecided(detail=str(error)) from error
        return proved_pod(review, account)

    async def _facts(self, bound: BoundPod, account: Account) -> WorkloadFacts:
        try:
            async with self._reviews:
                pod = await self._client.get(PODS, bound.name, bound.namespace)
        except NotFound:
            pod = None
        except KubernetesError as error:
            raise StatementUndecided(detail=str(error)) from error
        return pod_facts(pod, bound, account)

    async def _signed(self, facts: WorkloadFacts, peer: SvidEvidence) -> Statement:
        keys = await self._keys()
        return issue_statement(peer, facts, keys.signers, self._now(), self._random, keys.issuer, LIFE)

    async def _another(self, bound: BoundPod, version: str, seconds: float) -> bool:
        """Wait for another version of a pod; False after that time."""
        event = asyncio.Event()
        self._waiting[event] = (bound, version)
        try:
            async with asyncio.timeout(seconds):
                if self._version(bound) == version:
                    await event.wait()
        except TimeoutError:
            return False
        finally:
            del self._waiting[event]
        return True

    def _version(self, bound: BoundPod) -> str:
        pod = self._pods.objects.get((bound.namespace, bound.name))
        return "" if pod is None else str(pod["metadata"]["resourceVersion"])

    def _changed(self) -> None:
        if self._due is None and self._waiting:
            self._due = asyncio.get_running_loop().call_later(_TOGETHER, self._look)

    def _look(self) -> None:
        self._due = None
        for event, (bound, version) in self._waiting.items():
            if self._version(bound) != version:
                event.set()


def _tag(facts: WorkloadFacts, peer: SvidEvidence) -> str:
    stated = dumps([facts.claims(), list(facts.truncated)])
    return hashlib.sha256(peer.spki_sha256 + stated).hexdigest()[:32]
