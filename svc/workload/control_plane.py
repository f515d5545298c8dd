"""
HTTP requests to one server, such as a post-quantum issuer of the control plane: over mutual TLS, where its identity is
verified in the handshake, over a Unix socket, or over an endpoint that the caller has made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from treq import collect
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import Agent, HTTPConnectionPool, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.identity.matchers import Matcher
from svc.identity.spiffeid import SpiffeID
from svc.strictjson import loads_object
from svc.transport.addresses import UnixAddress, parse_address
from svc.transport.creators import TlsIdentity, client_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, PlainClientEndpoint
from svc.transport.errors import TransportError
from svc.transport.evidence import peer_evidence

_ORIGIN: Final = "http://control-plane.invalid"


class ServerAnswerTooLarge(SvcError):
    """the answer is larger than {limit} octets"""

    reason = "server_answer_too_large"
    hint = "is the address that of the server which was meant?"


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What the server answered.

    Args:
        code: the status code.
        etag: the entity tag, empty where there is none (RFC 9110 section 8.8.3).
        data: the body.
    """

    code: int
    etag: str
    data: bytes


def answered_within(asking: Deferred[Answer], seconds: float, reactor: Any) -> Deferred[Answer]:
    """Cancel a request after some seconds; it then fails with Twisted's ``TimeoutError``, whatever became of it."""
    return asking.addTimeout(seconds, reactor, _timed_out)


def _timed_out(_result: object, _seconds: float) -> Any:
    raise DeferredTimeout


def failure_text(error: BaseException | None) -> str:
    """What is behind an error of Twisted's HTTP client, whose own text is the representation of its causes."""
    causes = [each.value for each in getattr(error, "reasons", ())]
    # TLS 1.3: a server that refuses our certificate does so after the handshake is complete on this side.
    refused = next((each for each in causes if isinstance(each, TransportError)), None)
    if refused is not None:
        return str(refused)
    if isinstance(error, ResponseFailed) or not causes:
        return "the connection was lost" if causes else printable(error) or type(error).__name__
    return failure_text(causes[0])


def problem_code(data: bytes) -> str:
    """The code of a problem document (RFC 9457), for people."""
    try:
        return printable(loads_object(data).get("code", "no code"), 80)
    except SvcError:
        return "no problem document"


class HttpServer:
    """
    A server, over one connection that is kept until :meth:`close`.

    Args:
        endpoint: how it is reached, whatever the URI.
        reactor: the reactor.
        max_answer: the largest body, in octets.
    """

    def __init__(self, endpoint: IStreamClientEndpoint, reactor: Any, *, max_answer: int) -> None:
        self._max_answer = max_answer
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        agent = Agent.usingEndpointFactory(reactor, _FixedEndpoint(endpoint), pool=self._pool)
        self._client = HTTPClient(agent)

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """
        Send a request; redirects are not followed.

        Args:
            method: the method.
            path: the path, with its query.
            body: a JSON document.
            headers: beside what the body needs.

        Returns:
            The answer, whatever its code.

        Raises:
            ServerAnswerTooLarge: its body is larger than allowed.
            TransportError: no connection could be made.
        """
        sent = Headers({name: [value] for name, value in (headers or {}).items()})
        if body is not None:
            sent.setRawHeaders("content-type", ["application/json"])
        response = await self._client.request(
            method, _ORIGIN + path, headers=sent, data=body, allow_redirects=False, unbuffered=True
        )
        data = bytearray()

        def add(part: bytes) -> None:
            data.extend(part)
            if len(data) > self._max_answer:
                raise ServerAnswerTooLarge(limit=self._max_answer)

        await collect(response, add)
        etag = (response.headers.getRawHeaders("etag") or [""])[0]
        return Answer(response.code, etag, bytes(data))

    def close(self) -> Deferred[None]:
        """Close the connection."""
        closed: Deferred[None] = self._pool.closeCachedConnections()
        return closed


class ControlPlane(HttpServer):
    """
    A server whose identity is verified, or that has a Unix socket.

    Args:
        address: ``unix:///path``, or ``host:port`` of a server with mutual TLS.
        source: the credentials for mutual TLS; not used on a Unix socket.
        reactor: the reactor.
        now: returns the time, aware.
        expected: the identities of the server.
        timeout: seconds to connect.
        max_answer: the largest body, in octets.

    Raises:
        AddressInvalid: the address has neither form.
    """

    def __init__(
        self,
        address: str,
        source: TlsIdentity,
        reactor: Any,
        *,
        now: Callable[[], datetime],
        expected: Matcher,
        timeout: float,
        max_answer: int,
    ) -> None:
        parsed = parse_address(address)
        endpoint: IStreamClientEndpoint
        if isinstance(parsed, UnixAddress):
            endpoint = PlainClientEndpoint(reactor, parsed, timeout=timeout)
        else:
            creator = client_creator(source, clock=now, expected=expected, server_name=parsed.server_name)
            endpoint = MutualTlsClientEndpoint(reactor, parsed, creator, connect_timeout=timeout)
        self.address = str(parsed)
        self._endpoint = _RecordingEndpoint(endpoint)
        super().__init__(self._endpoint, reactor, max_answer=max_answer)

    @property
    def peer(self) -> SpiffeID | None:
        """The verified TLS peer; None on a Unix socket, where file permissions authenticate the server."""
        return self._endpoint.peer


@implementer(IStreamClientEndpoint)
class _RecordingEndpoint:
    """An endpoint that records the verified identity of its peer."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint
        self._tls = not isinstance(endpoint, PlainClientEndpoint)
        self.peer: SpiffeID | None = None

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting: Deferred[IProtocol] = self._endpoint.connect(protocolFactory)
        return connecting.addCallback(self._connected)

    def _connected(self, protocol: IProtocol) -> IProtocol:
        if self._tls:
            self.peer = peer_evidence(getattr(protocol, "transport", None)).svid.spiffe_id
        return protocol


@implementer(IAgentEndpointFactory)
class _FixedEndpoint:
    """Connects to the server whatever the URI."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint

    def endpointForURI(self, uri: object) -> IStreamClientEndpoint:
        return self._endpoint
