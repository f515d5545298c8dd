"""A real nginx with files, compression, an upload area and a virtual host, optionally before another application."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.peers.folders import short_folder
from tests.peers.programs import find
from tests.peers.waiting import free_port
from tests.peers.webapp import serve

_CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type text/plain;
    keepalive_requests 100000;
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        listen unix:{folder}/nginx.sock;
        root {folder}/www;
        gzip on;
        gzip_proxied any;
        gzip_types text/plain;
        location = /refuse {{ return 413 "too much for me\\n"; }}
        location /app/ {{
            proxy_pass http://127.0.0.1:{application}/;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_buffering off;
        }}
    }}
    server {{
        listen 127.0.0.1:{port};
        server_name pay.bank.example;
        location / {{ return 200 "$http_host $request_uri\n"; }}
    }}
}}
"""


class RunningNginx:
    """
    One nginx.

    Args:
        stack: ends it.
        application: the port of an application that it serves below ``/app/``.

    Attributes:
        port: where it listens.
        socket: where it listens too.
        www: the folder that it serves.
    """

    def __init__(self, stack: ExitStack, application: int) -> None:
        program = find("nginx")
        folder = short_folder(stack, "svc-nginx-")
        # Started by root, nginx works as another user, who must be able to come in.
        folder.chmod(0o755)
        self.www = folder / "www"
        self.www.mkdir()
        self.port, self.socket = free_port(), folder / "nginx.sock"
        config = folder / "nginx.conf"
        config.write_text(_CONFIG.format(folder=folder, port=self.port, application=application))
        serve(stack, [program, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")], self.port)

    def put(self, name: str, data: bytes) -> Path:
        """
        Add a file.

        Args:
            name: its name.
            data: its content.

        Returns:
            Its path.
        """
        path = self.www / name
        path.write_bytes(data)
        return path
