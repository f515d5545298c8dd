"""
Requests the post-quantum leaf of an SVID, or the PQ bundle, from a PQ issuer.

Proof and leaf are made and verified by ``svc.notary.pqleaf``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from cryptography.hazmat.primitives.asymmetric import mldsa
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from svc.envelope.envelope import Envelope
from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.errors import SvidInvalid
from svc.identity.matchers import Matcher, MemberOf
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.identity.verification import verify_svid
from svc.notary.pqleaf import PqLeaf, PqLeafRequest, PqLeafResponse, make_proof
from svc.strictjson import b64u_decode, loads_object
from svc.transport.creators import TlsIdentity
from svc.transport.errors import ConnectFailed, ConnectTimeout, TransportError
from svc.workload.control_plane import ControlPlane, failure_text, problem_code
from svc.workload.errors import PqIssuerError

TIMEOUT: Final = 10.0
#: A chain of ML-DSA-87 certificates is smaller.
MAX_ANSWER: Final = 128 * 1024
_KEYS: Final[dict[str, Callable[[], Any]]] = {
    "ML-DSA-65": mldsa.MLDSA65PrivateKey.generate,
    "ML-DSA-87": mldsa.MLDSA87PrivateKey.generate,
}
_ResultT = TypeVar("_ResultT")


def fetch_pq_leaf(
    address: str,
    svid: X509Svid,
    source: TlsIdentity,
    reactor: Any,
    *,
    now: Callable[[], datetime],
    pq_bundles: BundleSet | None = None,
    expected: Matcher | None = None,
    algorithm: str = "ML-DSA-65",
    timeout: float = TIMEOUT,
) -> Deferred[PqLeaf]:
    """
    Get a post-quantum leaf for an SVID.

    Args:
        address: ``unix:///path`` of an authority, or ``host:port`` of an issuer with mutual TLS.
        svid: the SVID that the leaf is bound to.
        source: the credentials for mutual TLS; not used on a Unix socket.
        reactor: the reactor.
        now: returns the time, aware.
        pq_bundles: the PQ roots; with them the leaf is verified.
        expected: the identities of the issuer; by default any of the SVID's trust domain.
        algorithm: of the new key, ``ML-DSA-65`` or ``ML-DSA-87``.
        timeout: seconds for the whole exchange.

    Returns:
        A Deferred that fires with the leaf; fails with ``PqIssuerError``, or with ``AddressInvalid``.
    """
    expected = expected or MemberOf(svid.spiffe_id.trust_domain)
    exchange = _Exchange(address, source, reactor, now, expected, timeout)
    return exchange.limited(Deferred.fromCoroutine(exchange.leaf(svid, pq_bundles, algorithm)))


def fetch_pq_bundles(
    address: str,
    source: TlsIdentity,
    reactor: Any,
    *,
    now: Callable[[], datetime],
    expected: Matcher,
    node: str,
    sequence: int,
    timeout: float = TIMEOUT,
) -> Deferred[PqBundles]:
    """
    Get the PQ bundle of an issuer, and report what the own node serves.

    Args:
        address: ``unix:///path`` of an authority, or ``host:port`` of an issuer with mutual TLS.
        source: the credentials for mutual TLS; not used on a Unix socket.
        reactor: the reactor.
        now: returns the time, aware.
        expected: the identities of the issuer, whose roots will be trusted.
        node: the name of the own node.
        sequence: that of the bundle which the node serves, for the issuer's trust domain; 0 while it has none.
        timeout: seconds for the whole exchange.

    Returns:
        A Deferred that fires with the bundle; fails with ``PqIssuerError``, or with ``AddressInvalid``.
    """
    exchange = _Exchange(address, source, reactor, now, expected, timeout)
    return exchange.limited(Deferred.fromCoroutine(exchange.bundles(node, sequence)))


class _Exchange:
    """One exchange with an issuer over one connection."""

    def __init__(
        self,
        address: str,
        source: TlsIdentity,
        reactor: Any,
        now: Callable[[], datetime],
        expected: Matcher,
        timeout: float,
    ) -> None:
        self._server = ControlPlane(
            address, source, reactor, now=now, expected=expected, timeout=timeout, max_answer=MAX_ANSWER
        )
        self._address = self._server.address
        self._reactor = reactor
        self._now = now
        self._expected = expected
        self._timeout = timeout

    def limited(self, result: Deferred[_ResultT]) -> Deferred[_ResultT]:
        """Limit the time and convert any failure with :func:`issuer_failure`."""
        return _with_timeout(self._timeout, result, self._address, self._reactor)

    async def bundles(self, node: str, sequence: int) -> PqBundles:
        report = urlencode({"node": node, "sequence": sequence})
        try:
            data = await self._send("GET", f"/v1/pq-bundle?{report}")
            return PqBundles.parse(data)
        finally:
            self._server.close()

    async def leaf(self, svid: X509Svid, pq_bundles: BundleSet | None, algorithm: str) -> PqLeaf:
        try:
            challenge, named = self._challenge(await self._send("GET", "/v1/challenge"))
            audience = self._server.peer or named
            if not self._expected.matches(audience):
                raise PqIssuerError(
                    "pq_issuer_malformed",
                    address=self._address,
                    defect=f"the issuer is {audience}, another was expected",
                )
            # Key and signature take some milliseconds, so they are made outside the reactor's thread.
            private_key, body = await deferToThreadPool(
                self._reactor, self._reactor.getThreadPool(), self._make_request, svid, algorithm, audience, challenge
            )
            answer = await self._send("POST", "/v1/pq-leaf", body)
            return self._accept(svid, answer, private_key, pq_bundles)
        finally:
            self._server.close()

    def _make_request(self, svid: X509Svid, algorithm: str, audience: SpiffeID, challenge: str) -> tuple[Any, bytes]:
        private_key = _KEYS[algorithm]()
        proof = make_proof(svid, private_key, audience, challenge, self._now())
        return private_key, PqLeafRequest(svid.chain, Envelope.parse(proof)).serialize()

    def _challenge(self, data: bytes) -> tuple[str, SpiffeID]:
        answer = loads_object(data)
        challenge, issuer = answer.get("challenge"), answer.get("issuer")
        if len(b64u_decode(challenge)) != 32 or not isinstance(challenge, str) or not isinstance(issuer, str):
            raise PqIssuerError(
                "pq_issuer_malformed",
                address=self._address,
                defect="a challenge of 32 octets and its issuer are missing",
            )
        return challenge, SpiffeID.parse(issuer)

    def _accept(self, svid: X509Svid, data: bytes, private_key: Any, pq_bundles: BundleSet | None) -> PqLeaf:
        leaf = PqLeaf.accept(PqLeafResponse.parse(data, max_bytes=MAX_ANSWER).chain, private_key, svid)
        if pq_bundles is not None:
            evidence = verify_svid(leaf.chain, pq_bundles, self._now())
            if not evidence.post_quantum:
                raise PqIssuerError(
                    "pq_issuer_malformed", address=self._address, defect="the chain of the leaf is not post-quantum"
                )
        return leaf

    async def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        answer = await self._server.request(method, path, body)
        if answer.code != 200:
            code = problem_code(answer.data)
            raise PqIssuerError("pq_issuer_refused", address=self._address, status=answer.code, code=code)
        return answer.data


def _with_timeout(seconds: float, leaf: Deferred[_ResultT], address: str, reactor: Any) -> Deferred[_ResultT]:
    """Limit the time and convert any failure with :func:`issuer_failure`."""
    late = reactor.callLater(seconds, leaf.cancel)

    def ended(result: _ResultT | Failure) -> _ResultT | Failure:
        in_time = late.active()
        if in_time:
            late.cancel()
        if not isinstance(result, Failure):
            return result
        return (
            issuer_failure(result, address)
            if in_time
            else Failure(PqIssuerError("pq_issuer_timeout", address=address, seconds=seconds))
        )

    return leaf.addBoth(ended)


def _malformed(address: str, defect: str) -> PqIssuerError:
    return PqIssuerError("pq_issuer_malformed", address=address, defect=defect)


def _unavailable(address: str, what: object) -> PqIssuerError:
    return PqIssuerError("pq_issuer_unavailable", address=address, what=what)


def not_reached(error: BaseException | None) -> bool:
    """Whether a request to the issuer failed because no connection was made, so that it is worth another one soon."""
    return isinstance(error, PqIssuerError) and (
        isinstance(error.__cause__, ConnectFailed) or error.reason == "pq_issuer_timeout"
    )


def issuer_failure(failure: Failure, address: str) -> Failure:
    """Convert a failure of a request to the issuer to one of ``PqIssuerError`` or ``CancelledError``."""
    error = failure.value
    converted: PqIssuerError
    if isinstance(error, PqIssuerError):
        return failure
    if isinstance(error, CancelledError):
        # Cancelled by the caller.
        return failure
    if isinstance(error, TransportError):
        # The sentence has the address already.
        unreachable = isinstance(error, ConnectFailed) and not isinstance(error, ConnectTimeout)
        converted = PqIssuerError(
            "pq_issuer_unavailable", address=address, what=error.detail if unreachable else str(error)
        )
    elif isinstance(error, SvidInvalid):
        converted = _malformed(address, f"the leaf does not verify: {error}")
    elif isinstance(error, SvcError):
        converted = _malformed(address, str(error))
    else:
        converted = _unavailable(address, failure_text(error))
    converted.__cause__ = error
    return Failure(converted)
