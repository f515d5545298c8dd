"""
The notary before an existing site, in this process: the proxy with the site where its application would be.

The site is any factory of HTTP/1.1 servers, such as ``twisted.web.server.Site``, and is not changed.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, Self

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.web.iweb import IRequest

from svc.embedding.arguments import Duration, argument_error, argument_name, notary_document, seconds
from svc.embedding.errors import EmbeddingError
from svc.embedding.opening import open_service
from svc.embedding.pipe import PipeEndpoint
from svc.identity import Matcher, SpiffeID, parse_matcher
from svc.naming import DEFAULT_SPIFFE_SOCKET, HEADER_FORWARDED_CLIENT
from svc.policyfiles.files import PolicyFiles
from svc.policyfiles.settings import Policies
from svc.proxy.assembly import Assembly
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.observers import ListenerObserver
from svc.settings import ConfigInvalid, parse

#: The ``upstream`` of the configuration; nothing connects to it.
IN_PROCESS: Final = "unix:///in-process"
#: Arguments of ``open`` whose keys have other names.
_ARGUMENTS: Final = {"spiffeSocketPath": "agent", "metricsAddr": "metrics"}


class NotarySite(Service):
    """
    A site that is served behind mutual TLS, with statements, receipts and the notary's reserved path.

    Args:
        site: the existing site.
        settings: those of ``svc-proxy``; every inbound listener forwards to the site, whatever its ``upstream``.
        reactor: the reactor.
        allow: who may send requests; None uses ``policy`` of the settings.
    """

    def __init__(
        self, site: IProtocolFactory, settings: ProxySettings, *, reactor: Any, allow: Matcher | None = None
    ) -> None:
        self._site = site
        self._proxy = _SiteAssembly(site, settings, reactor, allow).build()

    @classmethod
    async def open(
        cls,
        site: IProtocolFactory,
        listen: str,
        *,
        reactor: Any,
        trust_domain: str,
        allow: str,
        agent: str = DEFAULT_SPIFFE_SOCKET,
        notarization: str = "workload",
        metrics: str = "",
        start_timeout: Duration = 30.0,
        **notary: Any,
    ) -> Self:
        """
        Serve a site until the reactor shuts down, and wait until it is served.

        Args:
            site: the existing site.
            listen: ``host:port``.
            reactor: the reactor.
            trust_domain: the trust domain that the own SVID must be of.
            allow: who may send requests: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``.
            agent: the socket of the SPIFFE Workload API.
            notarization: the least level of every request: ``none``, ``workload``, ``logRequest``, ``signRequest``.
            metrics: the address of ``/metrics``; none by default.
            start_timeout: how long the identity, and again the first statement, may take: seconds or ``"30s"``.
            notary: the keys of ``notary`` in the configuration, in snake_case: ``path``, ``pq_issuer``, ``retention``
                (seconds or ``"90d"``) and so on.

        Raises:
            ArgumentInvalid: a value is not acceptable; names the argument.
            WorkloadApiUnavailable: no identity came in time.
            SvcError: the database, the issuer or the port is not available.
        """
        listener = {
            "name": "site",
            "protocol": "http",
            "direction": "inbound",
            "listen": listen,
            "upstream": IN_PROCESS,
            "notarization": notarization,
        }
        document = {
            "trustDomain": trust_domain,
            "spiffeSocketPath": agent,
            "metricsAddr": metrics,
            "adminAddr": "",
            "startTimeout": f"{seconds('start_timeout', start_timeout):.6f}s",
            "notary": notary_document(notary),
            "listeners": [listener],
        }
        try:
            settings = parse(json.dumps(document, default=os.fspath), ProxySettings, "NotarySite")
        except ConfigInvalid as error:
            raise argument_error(error, _argument) from error
        return await open_service(cls(site, settings, reactor=reactor, allow=parse_matcher(allow)), reactor)

    def startService(self) -> None:
        """Start the site and the proxy."""
        super().startService()
        self._site.doStart()
        self._proxy.startService()

    def when_ready(self) -> Deferred[None]:
        """Fires when the site is served, or fails with the error of the start."""
        return self._proxy.when_started()

    def stopService(self) -> Deferred[None]:
        """Stop after the drain time of running exchanges, when all records are durable."""
        super().stopService()
        return self._proxy.stopService().addBoth(self._ended)

    def _ended(self, result: None) -> None:
        self._site.doStop()
        return result


def _argument(key: str) -> str:
    """The argument of ``open`` that gave a key of the configuration."""
    last = key.removeprefix("notary.").removeprefix("listeners[0].")
    return _ARGUMENTS.get(last) or argument_name(last)


class _SiteAssembly(Assembly):
    """A proxy whose inbound listeners forward to a site of this process."""

    def __init__(self, site: IProtocolFactory, settings: ProxySettings, reactor: Any, allow: Matcher | None) -> None:
        self._upstream = PipeEndpoint(site, reactor)
        self._allow = allow
        # ``when_started`` reports a failed start, and the settings are not reloaded.
        super().__init__(settings, reactor, lambda: None, lambda: settings)

    def _client_endpoint(self, settings: ListenerSettings, observer: ListenerObserver) -> IStreamClientEndpoint:
        if settings.direction == "inbound":
            return self._upstream
        return super()._client_endpoint(settings, observer)

    def _load_policies(self, settings: ProxySettings, former: PolicyFiles | None) -> Policies:
        return super()._load_policies(settings, former) if self._allow is None else Policies.admitting(self._allow)


def caller_id(request: IRequest) -> SpiffeID:
    """
    Return the verified identity of the client that sent a request.

    Args:
        request: a request of a site behind a :class:`NotarySite` or ``svc-proxy``. Nothing else may reach the site: any
            other client could write the header field.

    Raises:
        EmbeddingError: ``caller_unknown``, the request did not come through the notary.
    """
    lines = request.requestHeaders.getRawHeaders(HEADER_FORWARDED_CLIENT.encode("ascii"), [])
    _, found, identity = lines[0].rpartition(b";URI=") if len(lines) == 1 else (b"", b"", b"")
    if not found:
        raise EmbeddingError("caller_unknown")
    return SpiffeID.parse(identity.decode("ascii"))
