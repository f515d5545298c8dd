"""The status document and its JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.process.status import (
    IdentityStatus,
    IssuedCounts,
    LastError,
    ListenerStatus,
    Rates,
    Status,
    StoreStatus,
)
from svc.telemetry.health import Health

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def minimal(**members: object) -> Status:
    """The document of a process that has just started."""
    given: dict[str, object] = {
        "process": "proxy",
        "version": "1.0",
        "pid": 7,
        "started": NOW,
        "now": NOW,
        "ready": False,
        "draining": False,
        "conditions": Health(("listeners",), now=lambda: NOW).conditions,
    }
    return Status(**(given | members))  # type: ignore[arg-type]


class StatusTests(SynchronousTestCase):
    """:class:`Status`."""

    def test_just_started(self) -> None:
        """Before anything is known the lists are empty, and single values are left out."""
        condition = {
            "name": "listeners",
            "ok": False,
            "required": True,
            "since": "2026-11-21T12:00:00.000000Z",
            "reason": "not_yet_known",
        }
        expected = {
            "v": 1,
            "schema": "svc.status/1",
            "process": "proxy",
            "version": "1.0",
            "pid": 7,
            "started": "2026-11-21T12:00:00Z",
            "now": "2026-11-21T12:00:00Z",
            "ready": False,
            "draining": False,
            "conditions": [condition],
            "identities": [],
            "listeners": [],
            "denials": {},
            "lastErrors": [],
        }
        self.assertEqual(expected, minimal().as_json())

    def test_every_part(self) -> None:
        """Each part has the member names of the schema, and the whole can be encoded."""
        later = NOW + timedelta(hours=1)
        listener = ListenerStatus(
            *("web", "http", "inbound", "127.0.0.1:8443", "127.0.0.1:80", "none", "signRequest"),
            *(1, 2, 3, 4, later),
        )
        status = minimal(
            trust_domain="prod.example",
            identities=(
                IdentityStatus("spiffe://prod.example/a", later, NOW, "id", "hybrid", later, statement_issuer="i"),
            ),
            listeners=(listener,),
            rates=Rates(10.0, 1.5, 0.0, 0.1, 0.004, None, 1.0, 2.0, 0.0),
            store=StoreStatus("/x", True, "", 3),
            issued=IssuedCounts(1, 2, 3),
            clients=1,
            sessions=2,
            retained=3,
            queued=4,
            denials={"policy_deny": 2},
            last_errors=(LastError(NOW, "svc.x", "policy_deny", "no"),),
        )
        shown = json.loads(json.dumps(status.as_json()))
        self.assertEqual(
            {
                "spiffeID": "spiffe://prod.example/a",
                "notAfter": "2026-11-21T13:00:00Z",
                "servesUntil": "2026-11-21T12:00:00Z",
                "statementID": "id",
                "profile": "hybrid",
                "pqNotAfter": "2026-11-21T13:00:00Z",
                "statementIssuer": "i",
            },
            shown["identities"][0],
        )
        self.assertEqual(
            {
                *("name", "protocol", "direction", "listen", "upstream", "level", "maxLevel", "connections"),
                *("peers", "requests", "refusals", "certificateNotAfter"),
            },
            set(shown["listeners"][0]),
        )
        self.assertEqual(
            {"seconds", "requests", "refusals", "errors", "p50", "received", "sent", "dropped"}, set(shown["rates"])
        )
        self.assertEqual({"path": "/x", "writable": True, "trouble": "", "records": 3}, shown["store"])
        self.assertEqual({"x509": 1, "jwt": 2, "pqLeaves": 3}, shown["issued"])
        self.assertEqual((1, 2, 3, 4), tuple(shown[name] for name in ("clients", "sessions", "retained", "queued")))
        self.assertEqual("prod.example", shown["trustDomain"])
        self.assertEqual(
            [{"at": "2026-11-21T12:00:00Z", "event": "svc.x", "reason": "policy_deny", "detail": "no", "count": 1}],
            shown["lastErrors"],
        )
