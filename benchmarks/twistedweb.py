"""
Twisted's own reverse proxy behind mutual TLS on Twisted's own transports, as a peer of the benchmark.

::

    python twistedweb.py PORT BACKEND-PORT FOLDER     # FOLDER holds both.pem and roots.pem
"""

from __future__ import annotations

import sys
from pathlib import Path

from OpenSSL import SSL
from twisted.internet import endpoints, reactor, ssl
from twisted.web import proxy, server

_MARKER = b"-----END CERTIFICATE-----"


class _QuietSite(server.Site):
    noisy = False

    def log(self, request: object) -> None:
        """Write no access log, as the other devices write none."""


def main(port: int, backend: int, folder: Path) -> None:
    """
    Serve until the end.

    Args:
        port: where to listen, on 127.0.0.1.
        backend: the port of the application.
        folder: of the credentials.
    """
    pems = [part + _MARKER for part in (folder / "roots.pem").read_bytes().split(_MARKER)[:-1]]
    roots = ssl.trustRootFromCertificates([ssl.Certificate.loadPEM(pem) for pem in pems])
    own = ssl.PrivateCertificate.loadPEM((folder / "both.pem").read_bytes())
    chain = [part + _MARKER for part in (folder / "chain.pem").read_bytes().split(_MARKER)[1:-1]]
    options = ssl.CertificateOptions(
        privateKey=own.privateKey.original,
        certificate=own.original,
        extraCertChain=[ssl.Certificate.loadPEM(pem).original for pem in chain],
        trustRoot=roots,
        raiseMinimumTo=ssl.TLSVersion.TLSv1_3,
    )
    options.getContext().set_options(SSL.OP_NO_TICKET)
    proxy.ProxyClientFactory.noisy = False
    site = _QuietSite(proxy.ReverseProxyResource("127.0.0.1", backend, b""))
    endpoints.SSL4ServerEndpoint(reactor, port, options, backlog=1024, interface="127.0.0.1").listen(site)
    reactor.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
