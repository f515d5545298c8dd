"""
One line of a list of receipts: what a payload says in short.

Reads nothing but the payload, without verifying it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from svc.envelope.claims import Claims, utc_seconds
from svc.envelope.errors import Malformed

#: The most characters of a text in a summary.
MAX_TEXT: Final = 1024


def receipt_summary(name: str, payload: bytes) -> dict[str, object]:
    """
    Summarize a receipt or an unsigned record by its identifier; the path is without query, and what is absent is None,
    so all members of HTTP in one of MQTT and the reverse.

    Returns:
        The object of a list that programs read: its members are listed in docs/receipts.md.
    """
    try:
        # Not the strict parser, which takes ten times as long: a summary verifies nothing.
        read = json.loads(payload)
    except (ValueError, RecursionError):
        read = None
    claims: Mapping[str, object] = read if isinstance(read, dict) else {}
    svc = _member(claims, "svc")
    request, response, time = _member(svc, "request"), _member(svc, "response"), _member(svc, "time")
    return {
        "id": name,
        "time": _time(claims),
        "level": _text(svc.get("level")),
        "client": _text(_member(svc, "client").get("spiffeID")),
        "server": _text(_member(svc, "server").get("spiffeID")),
        "method": _text(request.get("method")),
        "authority": _text(request.get("authority")),
        "path": _text(request.get("path")),
        "status": _number(response.get("status")),
        "packet": _text(request.get("packet")),
        "topic": _text(request.get("topic")),
        "reasonCode": _number(response.get("reasonCode")),
        "outcome": _text(svc.get("outcome")),
        "nonce": _text(svc.get("nonce")),
        "jti": _text(claims.get("jti")),
        "workloadStatementID": _text(svc.get("workloadStatementID")),
        "received": _text(time.get("received")),
        "completed": _text(time.get("completed")),
    }


def described(summary: Mapping[str, object]) -> tuple[object, object, object]:
    """Method, path and status of a summary for people; of a message of MQTT packet, topic and reason code."""
    if summary.get("packet") is None:
        return summary.get("method"), summary.get("path"), summary.get("status")
    code = _number(summary.get("reasonCode"))
    return summary["packet"], summary.get("topic"), None if code is None else f"0x{code:02x}"


def _member(members: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def _time(claims: Mapping[str, object]) -> str | None:
    try:
        return utc_seconds(Claims(claims).time("iat"))
    except Malformed:
        return None


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
