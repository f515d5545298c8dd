"""
The dashboards of ``svc/data/dashboards`` for Grafana: one description of their panels, and the JSON that follows from
it.

A query is made by :class:`Metrics`, which knows the families that the processes have: a family, label or value that is
not there ends the generation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, ProcessCollector

from docs.generator.pages import PageBroken
from svc.broker.hub import Hub
from svc.broker.reports import BrokerMetrics, BrokerStoreReports
from svc.telemetry.health import Health
from svc.telemetry.metrics import ProxyMetrics

#: What Prometheus itself records of each target.
_OF_PROMETHEUS = ("up", "scrape_duration_seconds")
#: Labels that Prometheus adds to every series.
_TARGET_LABELS = frozenset(("job", "instance"))
_SCOPE = 'job=~"$job",instance=~"$instance"'
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: The columns of a dashboard, and the rows of a panel.
_COLUMNS, _HEIGHT, _STAT_HEIGHT = 24, 8, 4


@dataclass(frozen=True)
class Query:
    """
    One query of a panel.

    Args:
        expression: PromQL with the variables of Grafana.
        legend: with labels in double braces; empty for all labels.
    """

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """
    One panel.

    Args:
        title: what it shows.
        unit: of Grafana: ``s``, ``Bps``, ``reqps`` …
        queries: what is drawn.
        about: what a reader should know or do; shown as the panel's description.
        bad_above: the value from which on it is red.
        bad_below: the value below which it is red.
        quiet: whether it is empty as long as nothing fails.
        stat: whether it is one number instead of a graph.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""
    bad_above: float | None = None
    bad_below: float | None = None
    quiet: bool = False
    stat: bool = False


@dataclass(frozen=True)
class Dashboard:
    """
    One dashboard.

    Args:
        name: of its file, and its identifier in Grafana.
        title: shown by Grafana.
        family: one that each process has; jobs and instances are found by it.
        rows: titles with their panels.
    """

    name: str
    title: str
    family: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels in order."""
        for _title, panels in self.rows:
            yield from panels


class Metrics:
    """
    Writes queries on the families of a registry.

    Args:
        registry: of a process, with at least one series of each family.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._labels: dict[str, dict[str, set[str]]] = {name: {} for name in _OF_PROMETHEUS}
        for family in registry.collect():
            for sample in family.samples:
                known = self._labels.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    known.setdefault(label, set()).add(value)

    def series(self, name: str, **labels: str) -> str:
        """
        Select the series of a family at the chosen instances.

        Args:
            name: as it is scraped, ``_total`` and ``_bucket`` included.
            labels: values that must be equal.

        Raises:
            PageBroken: there is no such series.
        """
        known = self._labels.get(name)
        if known is None:
            raise PageBroken(f"no process has the metric {name}")
        for label, value in labels.items():
            if value not in known.get(label, ()):
                raise PageBroken(f'the metric {name} has no series with {label}="{value}"')
        pairs = "".join(f',{label}="{value}"' for label, value in labels.items())
        return f"{name}{{{_SCOPE}{pairs}}}"

    def total(self, name: str, *by: str, **labels: str) -> str:
        """Add up the values of a gauge, for each value of these labels."""
        return f"{self._sum(name, by)} ({self.series(name, **labels)})"

    def rate(self, name: str, *by: str, **labels: str) -> str:
        """How fast a counter grows each second, for each value of these labels."""
        return f"{self._sum(name, by)} (rate({self.series(name, **labels)}[$__rate_interval]))"

    def increase(self, name: str, *by: str) -> str:
        """By how much a counter grew between two points of a graph, for each value of these labels."""
        return f"{self._sum(name, by)} (increase({self.series(name)}[$__rate_interval]))"

    def quantiles(self, name: str, *by: str, **labels: str) -> tuple[Query, ...]:
        """The median, the 95th and the 99th percentile of a histogram."""
        rate = self.rate(f"{name}_bucket", "le", *by, **labels)
        prefix = "".join(f"{{{{{label}}}}} " for label in by)
        return tuple(
            Query(f"histogram_quantile({q}, {rate})", f"{prefix}p{q[2:]:0<2}") for q in ("0.5", "0.95", "0.99")
        )

    def _sum(self, name: str, by: Iterable[str]) -> str:
        known = self._labels.get(name, {})
        if unknown := {label for label in by if label not in known and label not in _TARGET_LABELS}:
            raise PageBroken(f"the metric {name} has no label {', '.join(sorted(unknown))}")
        return f"sum by ({', '.join(by)})" if by else "sum"


def proxy_metrics() -> Metrics:
    """The families of a proxy with both kinds of listeners."""
    registry = CollectorRegistry()
    metrics = ProxyMetrics(registry)
    metrics.listener("http", "inbound")
    metrics.listener("http", "outbound")
    metrics.notary("http")
    metrics.watch_svids(lambda: [("spiffe://example.org/a", datetime.now(UTC))])
    ProcessCollector(registry=registry)
    return Metrics(registry)


def broker_metrics() -> Metrics:
    """The families of a broker with database, certificates and Workload API."""
    registry = CollectorRegistry()
    hub = Hub(now=lambda: 0.0, guard=None, random_name=str, call_soon=lambda _turn: None)  # type: ignore[arg-type]
    hub.statistics.refused["mqtt_no_rule"] = 1
    store = BrokerStoreReports(Health(("store",), now=lambda: datetime.now(UTC)), "broker.db")
    registry.register(
        BrokerMetrics(hub, store, lambda: [("displays", datetime.now(UTC))], last_contact=lambda: datetime.now(UTC))
    )
    ProcessCollector(registry=registry)
    return Metrics(registry)


def dashboards() -> tuple[Dashboard, ...]:
    """Describe all dashboards."""
    return _proxy(proxy_metrics()), _broker(broker_metrics())


def _proxy(m: Metrics) -> Dashboard:
    requests = "svc_proxy_request_duration_seconds"
    return Dashboard(
        "svc-proxy",
        "svc-proxy",
        "svc_proxy_active_connections",
        (
            ("Overview", _proxy_overview(m)),
            (
                "Traffic",
                (
                    _graph("Requests", "reqps", Query(m.rate(f"{requests}_count", "http_method"), "{{http_method}}")),
                    _graph(
                        "Octets of the application",
                        "Bps",
                        Query(m.rate("svc_proxy_bytes_received_total"), "received from clients"),
                        Query(m.rate("svc_proxy_bytes_sent_total"), "sent to backends"),
                    ),
                    _graph(
                        "Requests by notarization level",
                        "reqps",
                        Query(m.rate("svc_proxy_notary_level_total", "level"), "{{level}}"),
                    ),
                ),
            ),
            (
                "Latency",
                (
                    _graph(
                        "Duration of requests",
                        "s",
                        *m.quantiles(requests),
                        about="From the head of a request to its end.",
                    ),
                    _graph("Duration of look-ups of statements and receipts", "s", *m.quantiles(_LOOKUPS)),
                ),
            ),
            ("Refusals", _proxy_refusals(m)),
            ("Handshakes and connections", _proxy_connections(m)),
            ("Notary", _proxy_notary(m)),
            ("Credentials", _proxy_credentials(m)),
            ("Process", _process(m)),
        ),
    )


_LOOKUPS = "svc_proxy_notary_lookup_duration_seconds"
_NOT_AFTER = "svc_proxy_svid_not_after_seconds"
_CONTACT = "svc_proxy_workload_api_last_contact_timestamp_seconds"


def _proxy_overview(m: Metrics) -> tuple[Panel, ...]:
    return (
        _stat("Up", "none", Query(f"sum({m.series('up')})"), bad_below=1),
        _stat("Requests", "reqps", Query(m.rate("svc_proxy_request_duration_seconds_count"))),
        _stat(
            "Denied",
            "reqps",
            Query(m.rate("svc_proxy_auth_decisions_total", result="denied")),
            bad_above=0.5,
        ),
        _stat("Open connections", "none", Query(m.total("svc_proxy_active_connections"))),
        _stat(
            "Notary takes records",
            "bool_yes_no",
            Query(f"min({m.series('svc_proxy_notary_writable')})"),
            bad_below=1,
        ),
        _stat("First SVID ends in", "s", Query(f"min({m.series(_NOT_AFTER)}) - time()"), bad_below=600),
    )


def _proxy_refusals(m: Metrics) -> tuple[Panel, ...]:
    return (
        _graph(
            "Denied, by reason",
            "reqps",
            Query(m.rate("svc_proxy_auth_decisions_total", "role", "reason", result="denied"), "{{role}} {{reason}}"),
            about="role is that of this proxy: server for its clients, client for the peers of outbound listeners.",
        ),
        _graph(
            "Failed handshakes, by reason",
            "reqps",
            Query(f"{m.rate('svc_proxy_tls_handshake_failures_total', 'role', 'reason')} > 0", "{{role}} {{reason}}"),
            about="docs/telemetry.md says what each reason means.",
            quiet=True,
        ),
        _graph(
            "Denials that were not logged one by one",
            "reqps",
            Query(f"{m.rate('svc_proxy_denial_logs_suppressed_total', 'reason')} > 0", "{{reason}}"),
            quiet=True,
        ),
    )


def _proxy_connections(m: Metrics) -> tuple[Panel, ...]:
    handshakes = "svc_proxy_tls_handshake_duration_seconds"
    return (
        _graph("Duration of handshakes", "s", *m.quantiles(handshakes, "role")),
        _graph(
            "Handshakes by key exchange group",
            "reqps",
            Query(f"{m.rate('svc_proxy_tls_connections_total', 'role', 'group')} > 0", "{{role}} {{group}}"),
        ),
        _graph(
            "Open connections",
            "none",
            Query(m.total("svc_proxy_active_connections", "instance", "direction"), "{{instance}} {{direction}}"),
        ),
        _graph(
            "Connections by result",
            "reqps",
            Query(m.rate("svc_proxy_connections_total", "direction", "result"), "{{direction}} {{result}}"),
        ),
        _graph(
            "Ends of connections, by cause",
            "reqps",
            Query(f"{m.rate('svc_proxy_connections_closed_total', 'cause')} > 0", "{{cause}}"),
        ),
        _graph(
            "Connections to peers, closed for credentials",
            "reqps",
            Query(f"{m.rate('svc_proxy_upstream_connections_closed_total', 'cause')} > 0", "{{cause}}"),
            quiet=True,
        ),
    )


def _proxy_notary(m: Metrics) -> tuple[Panel, ...]:
    commits = "svc_proxy_notary_commit_duration_seconds"
    return (
        _graph(
            "Records",
            "reqps",
            Query(m.rate("svc_proxy_notary_records_total", "result"), "{{result}}"),
            about="An error cut a response before its end, or refused a request.",
        ),
        _graph(
            "Signatures that wait",
            "none",
            Query(m.total("svc_proxy_notary_signatures_waiting", "instance"), "{{instance}}"),
            about="At notary.queue (1024 by default) further requests get 429.",
            bad_above=512,
        ),
        _graph(
            "Duration of commits",
            "s",
            *m.quantiles(commits),
            about="A response waits for the commit of its record: a slow disk is a slow service.",
            bad_above=0.5,
        ),
        _graph("Commits", "ops", Query(m.rate(f"{commits}_count"), "groups of records")),
        _graph(
            "Takes new records",
            "bool_yes_no",
            Query(m.series("svc_proxy_notary_writable"), "{{instance}}"),
            about="At 0 requests that need a record are answered 503.",
            bad_below=1,
        ),
        _graph(
            "Room for records",
            "bytes",
            Query(m.total("svc_proxy_notary_bytes", "instance"), "taken, {{instance}}"),
            Query(m.total("svc_proxy_notary_room_bytes", "instance"), "left, {{instance}}"),
            about="Below 256 MiB or 10 % who holds most is refused first.",
        ),
        _graph(
            "Errors of the database",
            "ops",
            Query(f"{m.rate('svc_proxy_notary_db_errors_total', 'op', 'entity')} > 0", "{{op}} {{entity}}"),
            quiet=True,
        ),
    )


def _proxy_credentials(m: Metrics) -> tuple[Panel, ...]:
    return (
        _graph(
            "SVID ends in",
            "s",
            Query(f"{m.series(_NOT_AFTER)} - time()", "{{spiffe_id}} {{instance}}"),
            about="Saw teeth are right: each renewal makes it jump. At 0 no peer accepts the proxy.",
            bad_below=600,
        ),
        _graph(
            "Workload API away for",
            "s",
            Query(_since(m.series(_CONTACT)), "{{instance}}"),
            about="The credentials in force serve until they end.",
            bad_above=60,
        ),
    )


def _broker(m: Metrics) -> Dashboard:
    return Dashboard(
        "svc-broker",
        "svc-broker",
        "svc_broker_connections_active",
        (
            ("Overview", _broker_overview(m)),
            ("Clients", _broker_clients(m)),
            ("Messages", _broker_messages(m)),
            ("Persistence", _broker_persistence(m)),
            (
                "Credentials",
                (
                    _graph(
                        "Certificate ends in",
                        "s",
                        Query(
                            f"{m.series('svc_broker_certificate_not_after_seconds')} - time()",
                            "{{listener}} {{instance}}",
                        ),
                        bad_below=600,
                    ),
                    _graph(
                        "Workload API away for",
                        "s",
                        Query(_since(m.series(_BROKER_CONTACT)), "{{instance}}"),
                        about="Empty for a broker without a listener with tls.spiffe.",
                        bad_above=60,
                    ),
                    _graph(
                        "Reloads of the configuration",
                        "none",
                        Query(m.increase("svc_broker_config_reloads_total", "result"), "{{result}}"),
                    ),
                ),
            ),
            ("Process", _process(m)),
        ),
    )


_BROKER_CONTACT = "svc_broker_workload_api_last_contact_timestamp_seconds"


def _broker_overview(m: Metrics) -> tuple[Panel, ...]:
    return (
        _stat("Up", "none", Query(f"sum({m.series('up')})"), bad_below=1),
        _stat("Clients", "none", Query(m.total("svc_broker_connections_active"))),
        _stat("Sessions", "none", Query(m.total("svc_broker_sessions"))),
        _stat("Received", "mps", Query(m.rate("svc_broker_messages_received_total"))),
        _stat("Dropped", "mps", Query(m.rate("svc_broker_messages_dropped_total")), bad_above=0.1),
        _stat(
            "Takes durable state",
            "bool_yes_no",
            Query(f"min({m.series('svc_broker_store_accepting')})"),
            bad_below=1,
        ),
    )


def _broker_clients(m: Metrics) -> tuple[Panel, ...]:
    return (
        _graph(
            "Clients and sessions",
            "none",
            Query(m.total("svc_broker_connections_active"), "clients"),
            Query(m.total("svc_broker_sessions"), "sessions"),
            Query(m.total("svc_broker_subscriptions"), "subscriptions"),
        ),
        _graph("Accepted connections", "ops", Query(m.rate("svc_broker_connections_total"), "accepted")),
        _graph(
            "Refused or ended, by reason",
            "ops",
            Query(f"{m.rate('svc_broker_refusals_total', 'reason')} > 0", "{{reason}}"),
            about="docs/reasons.md says what each reason means.",
            quiet=True,
        ),
        _graph(
            "Refused by access rules",
            "ops",
            Query(m.rate("svc_broker_denied_total", "action"), "{{action}}"),
            Query(m.rate("svc_broker_sessions_revoked_total"), "sessions revoked"),
        ),
    )


def _broker_messages(m: Metrics) -> tuple[Panel, ...]:
    return (
        _graph(
            "Messages",
            "mps",
            Query(m.rate("svc_broker_messages_received_total"), "received"),
            Query(m.rate("svc_broker_messages_sent_total"), "sent"),
        ),
        _graph(
            "Octets",
            "Bps",
            Query(m.rate("svc_broker_payload_bytes_received_total"), "payloads received"),
            Query(m.rate("svc_broker_bytes_sent_total"), "packets sent"),
        ),
        _graph(
            "Dropped, by reason",
            "mps",
            Query(m.rate("svc_broker_messages_dropped_total", "reason"), "{{reason}}"),
            about="queue_full: a client's queue (limits.queued) is full. queues_full: all together are."
            " congested: a client does not read.",
        ),
        _graph(
            "Retained messages",
            "none",
            Query(m.total("svc_broker_retained_messages", "instance"), "{{instance}}"),
        ),
        _graph(
            "Memory of retained messages",
            "bytes",
            Query(m.total("svc_broker_retained_bytes", "instance"), "{{instance}}"),
        ),
    )


def _broker_persistence(m: Metrics) -> tuple[Panel, ...]:
    seconds = "svc_broker_store_commit_seconds"
    mean = f"{m.rate(f'{seconds}_sum', 'instance')} / {m.rate(f'{seconds}_count', 'instance')}"
    return (
        _graph(
            "Takes durable state",
            "bool_yes_no",
            Query(m.series("svc_broker_store_accepting"), "{{instance}}"),
            about="Empty without persistence. At 0 what must be durable is refused.",
            bad_below=1,
        ),
        _graph("Mean duration of a commit", "s", Query(mean, "{{instance}}"), bad_above=0.5),
        _graph(
            "Commits",
            "ops",
            Query(m.rate(f"{seconds}_count"), "groups"),
            Query(m.rate("svc_broker_store_operations_total"), "operations"),
        ),
        _graph(
            "Errors of the database",
            "ops",
            Query(f"{m.rate('svc_broker_store_errors_total', 'op')} > 0", "{{op}}"),
            quiet=True,
        ),
    )


def _since(series: str) -> str:
    """The age of a time when it was scraped; the page is made a moment after the scrape begins."""
    return f"clamp_min(timestamp({series}) - {series}, 0)"


def _process(m: Metrics) -> tuple[Panel, ...]:
    return (
        _graph("CPU", "percentunit", Query(m.rate("process_cpu_seconds_total", "instance"), "{{instance}}")),
        _graph("Memory", "bytes", Query(m.series("process_resident_memory_bytes"), "{{instance}}")),
        _graph(
            "File descriptors",
            "percentunit",
            Query(f"{m.series('process_open_fds')} / {m.series('process_max_fds')}", "{{instance}}"),
            about="Each connection takes one, behind the proxy a second one.",
            bad_above=0.8,
        ),
        _graph("Runs for", "s", Query(f"time() - {m.series('process_start_time_seconds')}", "{{instance}}")),
        _graph("Duration of a scrape", "s", Query(m.series("scrape_duration_seconds"), "{{instance}}"), bad_above=5),
    )


def _graph(
    title: str,
    unit: str,
    *queries: Query,
    about: str = "",
    bad_above: float | None = None,
    bad_below: float | None = None,
    quiet: bool = False,
) -> Panel:
    return Panel(title, unit, queries, about, bad_above, bad_below, quiet)


def _stat(
    title: str, unit: str, query: Query, *, bad_above: float | None = None, bad_below: float | None = None
) -> Panel:
    return Panel(title, unit, (query,), "", bad_above, bad_below, stat=True)


def document(dashboard: Dashboard) -> str:
    """Write a dashboard as Grafana imports it, with a line feed at the end."""
    found = {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["svc"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables(dashboard)},
        "panels": list(_placed(dashboard)),
    }
    return json.dumps(found, indent=1) + "\n"


def _variables(dashboard: Dashboard) -> list[Mapping[str, object]]:
    def values(label: str, selector: str) -> Mapping[str, object]:
        return {
            "name": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": f"label_values({dashboard.family}{selector}, {label})", "refId": label},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
        }

    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return [source, values("job", ""), values("instance", '{job=~"$job"}')]


def _placed(dashboard: Dashboard) -> Iterator[Mapping[str, object]]:
    """The panels with identifiers and places: three or four graphs, or six numbers, side by side."""
    identifier = y = 0
    for title, panels in dashboard.rows:
        identifier += 1
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {"id": identifier, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}
        y += 1
        height, across = (_STAT_HEIGHT, 6) if panels[0].stat else (_HEIGHT, 4 if len(panels) == 4 else 3)
        for first in range(0, len(panels), across):
            beside = panels[first : first + across]
            width = _COLUMNS // len(beside)
            for number, panel in enumerate(beside):
                identifier += 1
                yield {
                    "id": identifier,
                    **_panel(panel),
                    "gridPos": {"x": number * width, "y": y, "w": width, "h": height},
                }
            y += height


def _panel(panel: Panel) -> Mapping[str, object]:
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": _DATASOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "range": not panel.stat,
            "instant": panel.stat,
        }
        for number, query in enumerate(panel.queries)
    ]
    defaults: dict[str, object] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": _steps(panel)}}
    options: dict[str, object]
    if panel.stat:
        defaults["color"] = {"mode": "thresholds"}
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
    else:
        marked = panel.bad_above is not None or panel.bad_below is not None
        defaults["custom"] = {"fillOpacity": 10, "thresholdsStyle": {"mode": "line" if marked else "off"}}
        if panel.unit != "s" or panel.bad_below is None:
            defaults["min"] = 0
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.quiet:
        defaults["noValue"] = "none"
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        **({"description": panel.about} if panel.about else {}),
        "datasource": _DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def _steps(panel: Panel) -> Sequence[Mapping[str, object]]:
    if panel.bad_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.bad_below}]
    bad = [] if panel.bad_above is None else [{"color": "red", "value": panel.bad_above}]
    return [{"color": "green", "value": None}, *bad]
