"""
A reverse proxy of aiohttp's server and client behind mutual TLS, as a peer of the benchmark.

::

    python aiohttpproxy.py PORT BACKEND-PORT FOLDER     # FOLDER holds both.pem and roots.pem
"""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

from aiohttp import ClientSession, TCPConnector, web

_IDENTITY = "spiffe://bench.example/ns/bench/sa/workload"
_ADDED = {"X-Forwarded-Client-Cert": f"By={_IDENTITY};URI={_IDENTITY}"}
_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder / "both.pem")
    context.load_verify_locations(folder / "roots.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0
    return context


def main(port: int, backend: int, folder: Path) -> None:
    """
    Serve until the end.

    Args:
        port: where to listen, on 127.0.0.1.
        backend: the port of the application.
        folder: of the credentials.
    """

    async def forward(request: web.Request) -> web.StreamResponse:
        fields = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url = f"http://127.0.0.1:{backend}{request.raw_path}"
        body = request.content if request.can_read_body else None
        async with request.app["session"].request(
            request.method, url, headers=fields | _ADDED, data=body, allow_redirects=False
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    async def prepare(app: web.Application) -> None:
        app["session"] = ClientSession(connector=TCPConnector(limit=0), auto_decompress=False)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    app.on_startup.append(prepare)
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=_context(folder), access_log=None, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
