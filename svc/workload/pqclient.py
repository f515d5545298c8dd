"""
Asking a PQ issuer for the leaf that stands beside an SVID.

Owns the two requests, their limits and their errors. Proof and leaf belong to ``svc.notary.pqproof``; the connection to
``svc.transport``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import mldsa
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone, ResponseFailed
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.identity.bundle import BundleSet
from svc.identity.errors import SvidInvalid
from svc.identity.matchers import Matcher, MemberOf
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.identity.verification import verify_svid
from svc.notary.envelope import Envelope
from svc.notary.pqexchange import PqLeafRequest, PqLeafResponse
from svc.notary.pqproof import PqLeaf, make_proof
from svc.strictjson import b64u_decode, loads_object
from svc.transport.addresses import UnixAddress, parse_address
from svc.transport.creators import TlsIdentity, client_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, PlainClientEndpoint
from svc.transport.errors import ConnectFailed, ConnectTimeout, TransportError
from svc.transport.evidence import peer_evidence
from svc.workload.errors import (
    PqIssuerError,
    PqIssuerMalformed,
    PqIssuerRefused,
    PqIssuerTimeout,
    PqIssuerUnavailable,
)

TIMEOUT: Final = 10.0
#: A chain of ML-DSA-87 certificates stays below it.
MAX_ANSWER: Final = 128 * 1024
_KEYS: Final[dict[str, Callable[[], Any]]] = {
    "ML-DSA-65": mldsa.MLDSA65PrivateKey.generate,
    "ML-DSA-87": mldsa.MLDSA87PrivateKey.generate,
}
_ORIGIN: Final = b"http://pq-issuer.invalid"


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
        address: ``unix:///path`` of an authority, or ``host:port`` of an issuer that is asked over mutual TLS.
        svid: the SVID that the leaf is to stand beside.
        source: the credentials for mutual TLS; not used at a Unix socket.
        reactor: the reactor.
        now: tells the time.
        pq_bundles: the PQ roots; with them the leaf is verified before it is given back.
        expected: who may be the issuer; by default any identity of the SVID's trust domain.
        algorithm: of the new key, ``ML-DSA-65`` or ``ML-DSA-87``.
        timeout: seconds for all of it.

    Returns:
        A Deferred that fires with the leaf; fails with a subclass of ``PqIssuerError``, or with ``AddressInvalid`` for
        an address that is none.
    """
    parsed = parse_address(address)
    expected = expected or MemberOf(svid.spiffe_id.trust_domain)
    endpoint: IStreamClientEndpoint
    if isinstance(parsed, UnixAddress):
        endpoint = PlainClientEndpoint(reactor, parsed, timeout=timeout)
    else:
        creator = client_creator(source, clock=now, expected=expected, server_name=parsed.server_name)
        endpoint = MutualTlsClientEndpoint(reactor, parsed, creator, connect_timeout=timeout)
    asking = _Asking(str(parsed), svid, _Remembered(endpoint), reactor, now)
    leaf = Deferred.fromCoroutine(asking.leaf(expected, pq_bundles, algorithm))
    return _within(timeout, leaf, str(parsed), reactor)


class _Asking:
    """One exchange with an issuer over one connection."""

    def __init__(
        self, address: str, svid: X509Svid, endpoint: _Remembered, reactor: Any, now: Callable[[], datetime]
    ) -> None:
        self._address = address
        self._svid = svid
        self._endpoint = endpoint
        self._reactor = reactor
        self._now = now
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._agent = Agent.usingEndpointFactory(reactor, _OneEndpoint(endpoint), pool=self._pool)

    async def leaf(self, expected: Matcher, pq_bundles: BundleSet | None, algorithm: str) -> PqLeaf:
        try:
            challenge, named = self._challenge(await self._ask(b"GET", b"/v1/challenge", None))
            audience = self._endpoint.peer() or named
            if not expected.matches(audience):
                raise PqIssuerMalformed(address=self._address, defect=f"the issuer is {audience}, another was expected")
            # Key and signature take some milliseconds: not on the reactor's thread.
            private_key, body = await deferToThreadPool(
                self._reactor, self._reactor.getThreadPool(), self._request, algorithm, audience, challenge
            )
            answer = await self._ask(b"POST", b"/v1/pq-leaf", body)
            return self._accepted(answer, private_key, pq_bundles)
        finally:
            self._pool.closeCachedConnections()

    def _request(self, algorithm: str, audience: SpiffeID, challenge: str) -> tuple[Any, bytes]:
        private_key = _KEYS[algorithm]()
        proof = make_proof(self._svid, private_key, audience, challenge, self._now())
        return private_key, PqLeafRequest(self._svid.chain, Envelope.parse(proof)).serialize()

    def _challenge(self, data: bytes) -> tuple[str, SpiffeID]:
        answer = loads_object(data)
        challenge, issuer = answer.get("challenge"), answer.get("issuer")
        if len(b64u_decode(challenge)) != 32 or not isinstance(challenge, str) or not isinstance(issuer, str):
            raise PqIssuerMalformed(address=self._address, defect="a challenge of 32 octets and its issuer are missing")
        return challenge, SpiffeID.parse(issuer)

    def _accepted(self, data: bytes, private_key: Any, pq_bundles: BundleSet | None) -> PqLeaf:
        leaf = PqLeaf.accept(PqLeafResponse.parse(data, max_bytes=MAX_ANSWER).chain, private_key, self._svid)
        if pq_bundles is not None:
            evidence = verify_svid(leaf.chain, pq_bundles, self._now())
            if not evidence.post_quantum:
                raise PqIssuerMalformed(address=self._address, defect="the chain of the leaf is not post-quantum")
        return leaf

    async def _ask(self, method: bytes, path: bytes, body: bytes | None) -> bytes:
        headers = Headers({b"content-type": [b"application/json"]} if body is not None else {})
        producer = None if body is None else _Body(body)
        response: IResponse = await self._agent.request(method, _ORIGIN + path, headers, producer)
        data = await _read(response, self._address)
        if response.code != 200:
            raise PqIssuerRefused(address=self._address, status=response.code, code=_code(data))
        return data


@implementer(IStreamClientEndpoint)
class _Remembered:
    """An endpoint that remembers who was at the other end."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint
        self._peer: SpiffeID | None = None
        self._tls = not isinstance(endpoint, PlainClientEndpoint)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting: Deferred[IProtocol] = self._endpoint.connect(protocolFactory)
        return connecting.addCallback(self._connected)

    def peer(self) -> SpiffeID | None:
        """The verified TLS peer; None at a Unix socket, where file permissions vouch for the issuer."""
        return self._peer

    def _connected(self, protocol: IProtocol) -> IProtocol:
        if self._tls:
            self._peer = peer_evidence(getattr(protocol, "transport", None)).svid.spiffe_id
        return protocol


@implementer(IAgentEndpointFactory)
class _OneEndpoint:
    """Every address leads to the issuer."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def endpointForURI(self, uri: object) -> IStreamClientEndpoint:
        return self._endpoint


@implementer(IBodyProducer)
class _Body:
    """A request body that is there as a whole."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._data)
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done

    def pauseProducing(self) -> None:
        """Nothing is left to pause."""

    def resumeProducing(self) -> None:
        """Nothing was paused."""

    def stopProducing(self) -> None:
        """Nothing is left to stop."""


class _Reader(Protocol):
    """Collects a bounded body."""

    def __init__(self, done: Deferred[bytes], address: str) -> None:
        self._done: Deferred[bytes] | None = done
        self._address = address
        self._data = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MAX_ANSWER:
            error = PqIssuerMalformed(address=self._address, defect=f"the answer is larger than {MAX_ANSWER} octets")
            self._finish(Failure(error))
            if self.transport is not None:
                self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        complete = reason.check(ResponseDone, PotentialDataLoss) is not None
        self._finish(bytes(self._data) if complete else reason)

    def _finish(self, result: bytes | Failure) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        if isinstance(result, Failure):
            done.errback(result)
        else:
            done.callback(result)


def _read(response: IResponse, address: str) -> Deferred[bytes]:
    done: Deferred[bytes] = Deferred()
    response.deliverBody(_Reader(done, address))
    return done


def _code(data: bytes) -> str:
    try:
        return printable(loads_object(data).get("code", "no code"), 80)
    except SvcError:
        return "no problem document"


def _within(seconds: float, leaf: Deferred[PqLeaf], address: str, reactor: Any) -> Deferred[PqLeaf]:
    """Bound the time and turn whatever went wrong into one of our errors."""
    late = reactor.callLater(seconds, leaf.cancel)

    def ended(result: PqLeaf | Failure) -> PqLeaf | Failure:
        in_time = late.active()
        if in_time:
            late.cancel()
        if not isinstance(result, Failure):
            return result
        return _explained(result, address) if in_time else Failure(PqIssuerTimeout(address=address, seconds=seconds))

    return leaf.addBoth(ended)


def _explained(failure: Failure, address: str) -> Failure:
    error = failure.value
    explained: PqIssuerError
    if isinstance(error, PqIssuerError):
        return failure
    if isinstance(error, CancelledError):
        # The caller does not want it any more.
        return failure
    if isinstance(error, TransportError):
        # The address stands in the sentence already.
        unreachable = isinstance(error, ConnectFailed) and not isinstance(error, ConnectTimeout)
        explained = PqIssuerUnavailable(address=address, what=error.detail if unreachable else str(error))
    elif isinstance(error, SvidInvalid):
        explained = PqIssuerMalformed(address=address, defect=f"the leaf does not verify: {error}")
    elif isinstance(error, SvcError):
        explained = PqIssuerMalformed(address=address, defect=str(error))
    elif isinstance(error, ResponseFailed):
        explained = PqIssuerUnavailable(address=address, what="the connection was lost")
    else:
        explained = PqIssuerUnavailable(address=address, what=printable(error) or type(error).__name__)
    explained.__cause__ = error
    return Failure(explained)
