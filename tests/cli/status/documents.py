"""Status documents for tests."""

from __future__ import annotations

import json
from typing import Any

NOW = "2026-11-21T12:00:00Z"


def proxy_document(**members: Any) -> dict[str, Any]:
    """Make the document of a proxy in order; ``members`` replace its own, None removes one."""
    condition = {"name": "credentials", "ok": True, "required": True, "since": "2026-11-21T11:00:00.000000Z"}
    document: dict[str, Any] = {
        "v": 1,
        "schema": "svc.status/1",
        "process": "proxy",
        "version": "1.2.3",
        "pid": 4711,
        "started": "2026-11-21T08:47:30Z",
        "now": NOW,
        "trustDomain": "prod.example.org",
        "ready": True,
        "draining": False,
        "conditions": [condition],
        "identities": [
            {
                "spiffeID": "spiffe://prod.example.org/ns/pay/sa/api",
                "notAfter": "2026-11-21T12:41:00Z",
                "servesUntil": "2026-11-21T12:40:00Z",
                "statementID": "id",
                "profile": "hybrid",
                "pqNotAfter": "2026-11-21T12:41:00Z",
            }
        ],
        "listeners": [
            {
                "name": "web",
                "protocol": "http",
                "direction": "inbound",
                "listen": "0.0.0.0:8443",
                "upstream": "127.0.0.1:8080",
                "level": "workload",
                "maxLevel": "signRequest",
                "connections": 3,
                "peers": 2,
                "requests": 1234,
                "refusals": 5,
            }
        ],
        "rates": {"seconds": 10, "requests": 12.5, "refusals": 0.1, "errors": 0, "p50": 0.004, "p99": 1.25},
        "store": {"path": "/var/lib/svc/notary.db", "writable": True, "trouble": "", "records": 1200},
        "denials": {"policy_deny": 2, "svid_expired": 1},
        "lastErrors": [
            {
                "at": "2026-11-21T11:57:00Z",
                "event": "svc.pq.leaf.failed",
                "reason": "pq_issuer_unavailable",
                "detail": "the issuer does not answer",
                "source": "spiffe://prod.example.org/issuer",
                "count": 7,
            }
        ],
    }
    return {name: value for name, value in {**document, **members}.items() if value is not None}


def encoded(document: object) -> bytes:
    """A document as it is sent."""
    return json.dumps(document).encode()


def answer(body: bytes, *, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """An HTTP response with a body."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
