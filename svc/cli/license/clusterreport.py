"""
The license status of a cluster as people read it. Pure: the status and the time in, text out.

Every text of the status is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from svc.cli.license.report import distance, instant, shown
from svc.envelope.claims import utc_seconds
from svc.reports.report import Report, ReportLine

_TEXTS: Final = (
    ("Licensee", "licensee"),
    ("Customer", "customer"),
    ("Edition", "edition"),
    ("Features", "features"),
    ("Trust Domains", "trustDomains"),
    ("Enforcement", "enforcement"),
    ("License", "id"),
    ("Issuer", "issuer"),
)
_INSTANTS: Final = (
    ("Valid From", "notBefore"),
    ("Valid Until", "notAfter"),
    ("Grace Until", "graceUntil"),
    ("Maintenance Until", "maintenanceUntil"),
)


def status_report(status: Mapping[str, Any], cluster: object, now: datetime) -> str:
    """
    Describe a status: lines, a table of limits, a table of licenses.

    Args:
        status: as the object has it; times are aware times already, see :data:`svc.cli.license.status.TIMES`.
        cluster: whose it is, as a text.
    """
    lines = [
        ReportLine("Cluster", str(cluster)),
        ReportLine("State", shown(status.get("state", "")), mark=_state_mark(status, now)),
    ]
    lines += [
        ReportLine(shown(each["type"]), shown(each["status"]), mark=_because(each))
        for each in status.get("conditions") or ()
    ]
    lines += [ReportLine(label, _joined(status[key])) for label, key in _TEXTS if status.get(key)]
    lines += [_time_line(label, status[key], now) for label, key in _INSTANTS if status.get(key)]
    if secret := status.get("secretRef"):
        lines.append(ReportLine("Secret", _secret(secret)))
    lines.append(_time_line("Observed", status.get("observedTime", ""), now))
    tables = (_limits(status), _licenses(status))
    return str(Report("License Status", tuple(lines))) + "".join(_table(rows) for rows in tables if len(rows) > 1)


def _state_mark(status: Mapping[str, Any], now: datetime) -> str:
    change = status.get("nextChange")
    if not change:
        return shown(status["reason"]) if status.get("reason") else ""
    at = change["time"]
    return f"next: {shown(change['state'])} {distance(at, now) if isinstance(at, datetime) else shown(at)}"


def _because(condition: Mapping[str, Any]) -> str:
    message = condition.get("message")
    return shown(f"{condition['reason']}: {message}" if message else condition["reason"])


def _time_line(label: str, value: object, now: datetime) -> ReportLine:
    return instant(label, value, now) if isinstance(value, datetime) else ReportLine(label, shown(str(value)))


def _joined(value: object) -> str:
    return shown(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _secret(names: Mapping[str, Any]) -> str:
    return shown(f"{names['namespace']}/{names['name']}")


def _limits(status: Mapping[str, Any]) -> list[Sequence[str]]:
    limits, usage = status.get("limits") or {}, status.get("usage") or {}
    rows: list[Sequence[str]] = [("LIMIT", "ALLOWED", "IN USE")]
    for name in sorted({*limits, *usage}):
        rows.append((shown(name), str(limits.get(name, "unlimited")), str(usage.get(name, "not measured"))))
    return rows


def _licenses(status: Mapping[str, Any]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("SECRET", "STATE", "LICENSEE", "VALID UNTIL", "COUNTS")]
    for each in status.get("licenses") or ():
        until = each.get("notAfter", "")
        state = f"{each['state']} ({each['reason']})" if each.get("reason") else each["state"]
        rows.append(
            (
                _secret(each),
                shown(state),
                shown(each.get("licensee", "")),
                utc_seconds(until) if isinstance(until, datetime) else shown(str(until)),
                "yes" if each.get("counts") else "no",
            )
        )
    return rows


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n" + "".join(f"{line}\n" for line in _aligned(rows, widths))


def _aligned(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
