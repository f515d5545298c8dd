"""
The configuration files of everything that is measured, as values and text.

All of them do the same work: terminate mutual TLS 1.3 with the same SVID and without tickets, put
``X-Forwarded-Client-Cert`` into each request, and pool connections to nginx. Independent of processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

TRUST_DOMAIN: Final = "bench.example"
IDENTITY: Final = f"spiffe://{TRUST_DOMAIN}/ns/bench/sa/workload"
#: What nginx answers: a few octets made by itself, and a file.
SMALL: Final = "/small"
BULK: Final = "/bulk"
#: What our proxy refuses where it is flooded.
REFUSED: Final = "/refused"
SMALL_SIZE: Final = 200
BULK_SIZE: Final = 4 * 1024 * 1024
_MOST_CONNECTIONS: Final = 8000
#: Our proxy needs one descriptor for an idle connection; haproxy reserves two.
_OUR_MOST_CONNECTIONS: Final = 12_000


@dataclass(frozen=True, slots=True)
class Ground:
    """
    What all configurations share.

    Args:
        folder: of the run; the credentials are in ``credentials``.
        plain: the port of the application.
        tls: the port of the application behind mutual TLS.
    """

    folder: Path
    plain: int
    tls: int

    @property
    def credentials(self) -> Path:
        """The folder of ``chain.pem``, ``key.pem``, ``both.pem`` and ``roots.pem``."""
        return self.folder / "credentials"


def nginx(ground: Ground) -> str:
    """
    Write the application.

    Args:
        ground: what all share.

    Returns:
        The text of ``nginx.conf``.
    """
    return _NGINX.format(folder=ground.folder, plain=ground.plain, tls=ground.tls, body="x" * SMALL_SIZE)


def haproxy(ground: Ground, inbound: int, outbound: int) -> str:
    """
    Write haproxy with one thread.

    Args:
        ground: what all share.
        inbound: its port with mutual TLS.
        outbound: its port without.

    Returns:
        The text of ``haproxy.cfg``.
    """
    return _HAPROXY.format(
        mutual_tls=_MUTUAL_TLS.format(folder=ground.credentials),
        identity=IDENTITY,
        most=_MOST_CONNECTIONS,
        inbound=inbound,
        outbound=outbound,
        plain=ground.plain,
        tls=ground.tls,
    )


def haproxy_tcp(ground: Ground, inbound: int, upstream: int) -> str:
    """
    Write haproxy with one thread, relaying octets.

    Args:
        ground: what all share.
        inbound: its port with mutual TLS.
        upstream: the port that it relays to.

    Returns:
        The text of ``haproxy.cfg``.
    """
    mutual_tls = _MUTUAL_TLS.format(folder=ground.credentials).removesuffix(" alpn http/1.1")
    return _HAPROXY_TCP.format(mutual_tls=mutual_tls, most=_MOST_CONNECTIONS, inbound=inbound, upstream=upstream)


def stunnel(ground: Ground, inbound: int) -> str:
    """
    Write stunnel.

    Args:
        ground: what all share.
        inbound: its port with mutual TLS.

    Returns:
        The text of ``stunnel.conf``.
    """
    return _STUNNEL.format(folder=ground.credentials, inbound=inbound, plain=ground.plain)


def caddy(ground: Ground, inbound: int) -> dict[str, object]:
    """
    Write caddy.

    Args:
        ground: what all share.
        inbound: its port with mutual TLS.

    Returns:
        Its JSON configuration.
    """
    own = {"certificate": str(ground.credentials / "chain.pem"), "key": str(ground.credentials / "key.pem")}
    mutual_tls = {
        # The SVID names no host, so it is chosen by a tag.
        "certificate_selection": {"any_tag": ["own"]},
        "client_authentication": {
            "trusted_ca_certs_pem_files": [str(ground.credentials / "roots.pem")],
            "mode": "require_and_verify",
        },
        "protocol_min": "tls1.3",
        "curves": ["x25519"],
        "alpn": ["http/1.1"],
    }
    forward = {
        "handler": "reverse_proxy",
        "headers": {"request": {"set": {"X-Forwarded-Client-Cert": [f"By={IDENTITY};URI={IDENTITY}"]}}},
        "upstreams": [{"dial": f"127.0.0.1:{ground.plain}"}],
    }
    server = {
        "listen": [f"127.0.0.1:{inbound}"],
        "automatic_https": {"disable": True},
        "protocols": ["h1"],
        # Clients send no name of a host in TLS.
        "strict_sni_host": False,
        "tls_connection_policies": [mutual_tls],
        "routes": [{"handle": [forward]}],
    }
    return {
        "admin": {"disabled": True},
        "storage": {"module": "file_system", "root": str(ground.folder / "caddy")},
        "logging": {"logs": {"default": {"level": "WARN"}}},
        "apps": {
            "tls": {
                "certificates": {"load_files": [{**own, "tags": ["own"]}]},
                "session_tickets": {"disabled": True},
            },
            "http": {"servers": {"bench": server}},
        },
    }


def proxy(
    ground: Ground, levels: dict[str, int], outbound: int, tcp: int, admin: int, metrics: int
) -> dict[str, object]:
    """
    Write our proxy: one inbound listener for each level of notarization, one for TCP, and one outbound listener.

    Args:
        ground: what all share.
        levels: the inbound ports by level.
        outbound: the outbound port.
        tcp: the inbound port of the listener that relays TCP.
        admin: the port of the readiness page.
        metrics: the port of the metrics.

    Returns:
        The settings.
    """
    limits = {"connections": _OUR_MOST_CONNECTIONS}
    listeners: list[dict[str, object]] = [
        {
            "name": level,
            "protocol": "http",
            "direction": "inbound",
            "listen": f"127.0.0.1:{port}",
            "upstream": f"127.0.0.1:{ground.plain}",
            "notarization": level,
            "limits": limits,
        }
        for level, port in levels.items()
    ]
    listeners.append(
        {
            "name": "outbound",
            "protocol": "http",
            "direction": "outbound",
            "listen": f"127.0.0.1:{outbound}",
            "upstream": f"127.0.0.1:{ground.tls}",
            "peer": IDENTITY,
            "limits": limits,
        }
    )
    listeners.append(
        {
            "name": "tcp",
            "protocol": "tcp",
            "direction": "inbound",
            "listen": f"127.0.0.1:{tcp}",
            "upstream": f"127.0.0.1:{ground.plain}",
            "limits": limits,
        }
    )
    return _settings(ground, listeners, admin, metrics)


def mqtt_proxy(ground: Ground, levels: dict[str, int], broker: int, admin: int, metrics: int) -> dict[str, object]:
    """
    Write our proxy before a broker: one inbound listener for each level of notarization.

    Args:
        ground: what all share.
        levels: the inbound ports by level.
        broker: the port of the broker.
        admin: the port of the readiness page.
        metrics: the port of the metrics.

    Returns:
        The settings.
    """
    listeners: list[dict[str, object]] = [
        {
            "name": level,
            "protocol": "mqtt",
            "direction": "inbound",
            "listen": f"127.0.0.1:{port}",
            "upstream": f"127.0.0.1:{broker}",
            "limits": {"connections": _OUR_MOST_CONNECTIONS},
            **({} if level == "none" else {"notarization": level}),
        }
        for level, port in levels.items()
    ]
    return _settings(ground, listeners, admin, metrics)


def flooded_proxy(
    ground: Ground, policies: Path, ports: dict[str, int], upstreams: dict[str, int], admin: int, metrics: int
) -> dict[str, object]:
    """
    Write our proxy before servers that are flooded, or flood.

    Args:
        ground: what all share.
        policies: a file of policies.
        ports: the inbound ports by name of a listener.
        upstreams: the ports of the servers by name of a listener.
        admin: the port of the readiness page.
        metrics: the port of the metrics.

    Returns:
        The settings.
    """
    listeners: list[dict[str, object]] = [
        {
            "name": name,
            "protocol": "mqtt" if name in ("mqtt", "releases") else "http",
            "direction": "inbound",
            "listen": f"127.0.0.1:{port}",
            "upstream": f"127.0.0.1:{upstreams[name]}",
        }
        for name, port in ports.items()
    ]
    policy = {"default": "allow", "files": [str(policies)]}
    return _settings(ground, listeners, admin, metrics) | {"policy": policy}


#: Policies that refuse requests for one path.
REFUSING: Final = f"""\
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {{name: refused}}
spec:
  authorization:
    action: Deny
    rules: [{{name: path, to: [{{paths: ["{REFUSED}"]}}]}}]
"""


def _settings(ground: Ground, listeners: list[dict[str, object]], admin: int, metrics: int) -> dict[str, object]:
    return {
        "trustDomain": TRUST_DOMAIN,
        "spiffeSocketPath": f"unix://{ground.folder}/agent.sock",
        "metricsAddr": f"127.0.0.1:{metrics}",
        "adminAddr": f"127.0.0.1:{admin}",
        "notary": {
            "path": str(ground.folder / f"notary-{admin}.db"),
            "pqIssuer": f"unix://{ground.folder}/pq.sock",
        },
        "workload": {"namespace": "bench", "serviceAccount": "workload"},
        "policy": {"default": "allow"},
        "listeners": listeners,
    }


_NGINX: Final = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.err;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{plain} backlog=4096;
        listen 127.0.0.1:{tls} ssl backlog=4096;
        ssl_certificate {folder}/credentials/chain.pem;
        ssl_certificate_key {folder}/credentials/key.pem;
        ssl_client_certificate {folder}/credentials/roots.pem;
        ssl_verify_client on;
        ssl_verify_depth 4;
        ssl_protocols TLSv1.3;
        ssl_session_tickets off;
        default_type text/plain;
        location = /small {{ return 200 "{body}"; }}
        location = /bulk {{ root {folder}; }}
    }}
}}
"""

_MUTUAL_TLS: Final = "ssl crt {folder}/both.pem ca-file {folder}/roots.pem verify required alpn http/1.1"
_HAPROXY: Final = """\
global
    nbthread 1
    maxconn {most}
    tune.ssl.cachesize 0
    ssl-default-bind-options ssl-min-ver TLSv1.3 no-tls-tickets
    ssl-default-server-options ssl-min-ver TLSv1.3 no-tls-tickets
defaults
    mode http
    timeout connect 5s
    timeout client 120s
    timeout server 120s
    http-reuse always
frontend inbound
    bind 127.0.0.1:{inbound} backlog 4096 {mutual_tls} curves X25519
    http-request set-header X-Forwarded-Client-Cert By={identity};URI={identity}
    default_backend application
backend application
    server nginx 127.0.0.1:{plain}
frontend outbound
    bind 127.0.0.1:{outbound} backlog 4096
    default_backend remote
backend remote
    server nginx 127.0.0.1:{tls} {mutual_tls}
"""
_HAPROXY_TCP: Final = """\
global
    nbthread 1
    maxconn {most}
    tune.ssl.cachesize 0
    ssl-default-bind-options ssl-min-ver TLSv1.3 no-tls-tickets
defaults
    mode tcp
    timeout connect 5s
    timeout client 120s
    timeout server 120s
frontend inbound
    bind 127.0.0.1:{inbound} backlog 4096 {mutual_tls} curves X25519
    default_backend application
backend application
    server upstream 127.0.0.1:{upstream}
"""
_STUNNEL: Final = """\
foreground = yes
pid =
debug = err
[inbound]
accept = 127.0.0.1:{inbound}
connect = 127.0.0.1:{plain}
cert = {folder}/both.pem
CAfile = {folder}/roots.pem
verifyChain = yes
requireCert = yes
sslVersionMin = TLSv1.3
curves = X25519
sessionCacheSize = 1
options = NO_TICKET
"""
