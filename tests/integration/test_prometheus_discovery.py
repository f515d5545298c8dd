"""
A real Prometheus that finds manager, agent and proxy by the monitors of the rendered chart alone.

Pods and Services are those of the chart, and of the webhook of the running manager, at a real API server; in place of
kubelet and endpoints controller the test says at which address they are. Each family has an event in :data:`TABLE`, and
Prometheus is asked by PromQL whether its samples have moved; the processes are not asked.
"""

from __future__ import annotations

import copy
import json
import re
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from svc.agent.metrics import AgentMetrics
from svc.data import FOLDER
from svc.envelope.ids import new_nonce
from svc.license.secret import license_secret
from svc.license.vendors import pinned_keys
from svc.license.verification import verify_license
from svc.manager.control import CONTROLLERS
from svc.manager.metrics import ManagerMetrics
from svc.telemetry.metrics import ProxyMetrics
from svc.wire.mqtt import Connack, Properties, Publish
from tests.chart.rendering import Rendered
from tests.integration.metrics_rig import inbound, outbound, port_of
from tests.integration.test_agent import RunningAgent
from tests.integration.test_injection import restricted
from tests.integration.test_manager import CONFIG, RunningManager, prepared_server
from tests.integration.test_policy_files import document
from tests.license.material import LICENSE, envelope, text_of
from tests.manager.policies.objects import policy_object, rules
from tests.peers import webapp
from tests.peers.apiserver import ApiServerFailed
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.kubernetes_discovery import KubernetesTargets
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.mqttclient import RawClient
from tests.peers.partner import attempt
from tests.peers.prometheus import RunningPrometheus
from tests.peers.prometheus_operator import scrape_configs
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import NotInTime, Shared, eventually, free_port

NEEDS_TOOLS = ("helm", "kubernetes")
DOMAIN: Final = "prod.example.org"
NOTARY: Final = "/.well-known/svc-notary/v1"
SIGN: Final = "Svc-Notarization-Level: signRequest\r\n"
#: Octets of the largest packet that the broker of the stored messages takes.
LARGEST: Final = 2000


class Row(NamedTuple):
    """
    What moves a family.

    Args:
        family: with the suffix ``_total`` where it is a counter.
        event: the method of :class:`Site` that does it.
        labels: of the series, as in PromQL.
        falls: whether the value becomes less, and does not grow.
    """

    family: str
    event: str
    labels: str = ""
    falls: bool = False

    @property
    def query(self) -> str:
        """The sum of the series, or of the observations of a histogram."""
        suffix = "_count" if self.family.endswith(("_duration_seconds", "_requeue_after_seconds")) else ""
        job = "svc-" + self.family.split("_")[1]
        return f'sum({self.family}{suffix}{{job="{job}"{self.labels and ","}{self.labels}}}) or vector(0)'


#: In the order of the events: the API server goes last, with all that is found by it.
TABLE: Final = (
    Row("svc_agent_svid_renewals_total", "renewed_svid", 'result="success"'),
    Row("svc_proxy_svid_not_after_seconds", "renewed_svid"),
    Row("svc_agent_svid_expiry_seconds", "passing_time", falls=True),
    Row("svc_proxy_workload_api_last_contact_timestamp_seconds", "passing_time"),
    Row("svc_proxy_connections_total", "request", 'direction="inbound",result="success"'),
    Row("svc_proxy_active_connections", "request", 'direction="inbound",protocol="http"'),
    Row("svc_proxy_bytes_received_total", "request", 'protocol="http"'),
    Row("svc_proxy_bytes_sent_total", "request", 'protocol="http"'),
    Row("svc_proxy_request_duration_seconds", "request", 'http_method="GET"'),
    Row("svc_proxy_tls_handshake_duration_seconds", "request", 'role="server"'),
    Row("svc_proxy_tls_connections_total", "request", 'role="server"'),
    Row("svc_proxy_auth_decisions_total", "request", 'result="allowed"'),
    Row("svc_proxy_notary_records_total", "request", 'result="success",protocol="http"'),
    Row("svc_proxy_notary_level_total", "request", 'level="signRequest"'),
    Row("svc_proxy_notary_commit_duration_seconds", "request"),
    Row("svc_proxy_notary_lookup_duration_seconds", "request"),
    Row("svc_proxy_notary_admissions_held_total", "records_beyond_the_rate", 'reason="rate"'),
    Row("svc_proxy_tls_handshake_failures_total", "clients_without_certificate", 'reason="certificate_missing"'),
    Row("svc_proxy_connections_closed_total", "clients_without_certificate", 'cause="handshake"'),
    Row("svc_proxy_denial_logs_suppressed_total", "clients_without_certificate", 'reason="svid_invalid"'),
    Row("svc_proxy_policy_reloads_total", "policy_in_dry_run", 'result="success"'),
    Row("svc_proxy_policy_dry_run_total", "policy_in_dry_run", 'result="denied"'),
    Row("svc_proxy_notary_db_errors_total", "altered_record", 'op="get",entity="receipt"'),
    Row("svc_proxy_mqtt_buffer_messages_stored_total", "message_with_receipt"),
    Row("svc_proxy_mqtt_buffer_messages_acked_total", "message_with_receipt", 'source="upstream"'),
    Row("svc_proxy_mqtt_artifacts_total", "message_with_receipt", 'kind="receipt",result="published"'),
    Row("svc_proxy_notary_level_total", "message_at_workload", 'level="workload"'),
    Row("svc_proxy_mqtt_buffer_messages_acked_total", "message_for_an_absent_broker", 'source="middleware"'),
    Row("svc_proxy_mqtt_buffer_messages_durable_total", "message_for_an_absent_broker"),
    Row("svc_proxy_mqtt_buffer_messages_queued", "message_for_an_absent_broker"),
    Row("svc_proxy_mqtt_upstream_reconnections_total", "message_for_an_absent_broker", 'result="error"'),
    Row("svc_proxy_mqtt_buffer_messages_stored_total", "broker_that_is_back"),
    Row("svc_proxy_mqtt_buffer_messages_queued", "broker_that_is_back", falls=True),
    Row("svc_proxy_mqtt_upstream_reconnections_total", "broker_that_is_back", 'result="success"'),
    Row("svc_proxy_mqtt_dead_letters_total", "message_too_large_for_the_broker", 'cause="too_large"'),
    Row("svc_proxy_mqtt_dead_letters_kept", "message_too_large_for_the_broker"),
    Row("svc_proxy_mqtt_upstream_connack_rejected_total", "session_that_the_broker_refuses", 'reason="not_authorized"'),
    Row("svc_manager_license_valid", "license"),
    Row("svc_manager_reconcile_total", "license", 'controller="license-status"'),
    Row("svc_manager_reconcile_duration_seconds", "license", 'controller="license-status"'),
    Row("svc_manager_reconcile_requeue_after_seconds", "license", 'controller="license-status"'),
    Row("svc_manager_webhook_requests_total", "refused_pod", 'resource="pods",result="denied"'),
    Row("svc_manager_webhook_duration_seconds", "refused_pod", 'resource="pods"'),
    Row("svc_manager_policies_total", "policy_object", 'kind="cluster"'),
    Row("svc_manager_reconcile_total", "workloads_of_spire", 'controller="spire-instance",result="success"'),
    Row("svc_manager_reconcile_duration_seconds", "workloads_of_spire", 'controller="spire-instance"'),
    Row("svc_manager_spire_instances_total", "workloads_of_spire"),
    Row("svc_manager_spire_instances_ready", "workloads_of_spire"),
    Row("svc_manager_upkeep_total", "policy_object", 'what="compiled-policies",result="success"'),
    Row("svc_manager_config_reloads_total", "changed_configuration", 'result="success"'),
    Row("svc_agent_workload_api_connected", "workload_api_that_ends", falls=True),
    Row("svc_agent_workload_api_watch_errors_total", "workload_api_that_ends"),
    Row("svc_manager_config_watch_errors_total", "api_server_that_ends", 'source="configmap"'),
)
#: Alerts that an event of :class:`Site` lets fire; windows are cut to seconds.
FIRES: Final = {
    "passing_time": ("SvcLicenseInvalid", "SvcSpireDown"),
    "clients_without_certificate": ("SvcFleetAuthFailures", "SvcProxyAuthFailures", "SvcProxyHandshakeFailures"),
    "altered_record": ("SvcProxyStoreErrors",),
    "message_for_an_absent_broker": ("SvcProxyMqttMessagesWait",),
    "message_too_large_for_the_broker": ("SvcProxyMqttDeadLetters",),
    "workload_api_that_ends": ("SvcAgentWorkloadApiGone",),
    "processes_that_end": ("SvcManagerDown", "SvcAgentDown", "SvcProxyDown"),
}
_ENTRIES = "tests.integration.test_manager_entries.SpireTests."
_SHARES = "tests.integration.test_record_shares.ShareTests."
_NOTARY = "tests.telemetry.test_metrics.NotaryTests."
#: Families whose event has its test elsewhere, and where: it needs SPIRE, a peer in another cluster, a full disk,
#: a load that cannot be held for a scrape, an SVID that ends, or a broker that is away for minutes.
ELSEWHERE: Final = {
    "svc_manager_agent_sources_sync_errors_total": f"{_ENTRIES}test_workload_api_away",
    "svc_proxy_policy_watch_errors_total": "tests.integration.test_policy_endpoint.EndpointTests.test_manager_away",
    "svc_manager_policy_requests_total": "tests.manager.test_metrics.ManagerMetricsTests.test_policy_requests",
    "svc_manager_statement_requests_total": "tests.integration.test_manager_statements.StatementTests.test_own_pod",
    "svc_manager_bundle_exchange_total": "tests.integration.test_manager_peers.PeersTests.test_polled",
    "svc_proxy_upstream_connections_closed_total": (
        "tests.integration.test_proxy_ended_credentials.PeerTests.test_peer_of_an_outbound_listener"
    ),
    "svc_proxy_notary_writable": "tests.integration.test_metrics_store.WritingTests.test_full_disk",
    "svc_proxy_notary_bytes": f"{_NOTARY}test_room",
    "svc_proxy_notary_room_bytes": f"{_NOTARY}test_room",
    "svc_proxy_notary_room_seconds": f"{_NOTARY}test_room",
    "svc_proxy_notary_signatures_waiting": f"{_NOTARY}test_signing",
    "svc_proxy_notary_admissions_waiting": f"{_SHARES}test_requests",
    "svc_proxy_mqtt_buffer_replay_failures_total": (
        "tests.proxy.mqtt.stored.test_reports.BufferReportsTests.test_broker_away"
    ),
}


def own_address() -> str:
    """An address of this machine that is not loopback, which the API server accepts for no endpoint."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent; the address is one of documentation (RFC 5737).
        probe.connect(("198.51.100.1", 9))
        return str(probe.getsockname()[0])


def with_other_label(monitor: dict[str, Any]) -> dict[str, Any]:
    """The monitor as it would be with another value of the label that it selects."""
    found: dict[str, Any] = copy.deepcopy(monitor)
    found["metadata"]["name"] += "-other-label"
    labels = found["spec"]["selector"]["matchLabels"]
    labels |= dict.fromkeys(labels, "yes")
    return found


def with_other_port(monitor: dict[str, Any]) -> dict[str, Any]:
    """The monitor as it would be with the name of another port."""
    found: dict[str, Any] = copy.deepcopy(monitor)
    found["metadata"]["name"] += "-other-port"
    for key in ("endpoints", "podMetricsEndpoints"):
        for each in found["spec"].get(key, ()):
            each["port"] = "metrics"
    return found


class Site:
    """The processes, what the API server knows of them, and the events; each begins with its own connections."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        #: Ends what an event has left open.
        self.open = stack.enter_context(ExitStack())
        self.folder = short_folder(stack)
        self.address = own_address()
        self.server = prepared_server(stack, "--allow-privileged=true")
        self.authority = RunningAuthority(DOMAIN, entries=[entry("/ns/shop/sa/api"), entry("/ns/shop/sa/web")])
        stack.callback(self.authority.stop)
        self.authority.start()
        self.proxy = self._proxy()
        self.agent = RunningAgent(self.authority.address, csi=False)
        self.agent.config["trustDomain"] = DOMAIN
        self.manager = RunningManager(self.server)
        running = {"proxy": self.proxy, "agent": self.agent, "manager": self.manager}
        self.chart = Rendered(
            {
                "trustDomain": DOMAIN,
                "monitoring": {"enabled": True},
                **{name: {"metricsAddr": f":{each.metrics_port}"} for name, each in running.items()},
            }
        )
        self._cluster = strictyaml.loads(self.chart.one("ConfigMap", CONFIG)["data"]["cluster.yaml"])
        webhook = f"127.0.0.1:{free_port()}"
        self.manager.config["webhook"] = {"listen": webhook, "address": webhook}
        self.manager.config["cluster"] = self.cluster()
        for each in running.values():
            each.config["metricsAddr"] = f"{self.address}:{each.metrics_port}"
            stack.callback(each.stop)
            each.start()
        self.web = self._fetched()
        self._publish()
        discovery = KubernetesTargets(stack, self._reader())
        monitors = self.chart.of("ServiceMonitor", "PodMonitor")
        configs = [
            config
            for monitor in (*monitors, *map(with_other_label, monitors), *map(with_other_port, monitors))
            for config in scrape_configs(monitor, discovery, "1s")
        ]
        rules = self.folder / "alerts.yaml"
        text = (FOLDER / "alerts" / "alerts.yaml").read_text()
        rules.write_text(re.sub(r"\[\d+m\]", "[5s]", re.sub(r"for: \d+m", "for: 1s", text)))
        self.prometheus = RunningPrometheus(stack, configs, rules, interval=1)

    def cluster(self, **injection: Any) -> dict[str, Any]:
        """What the chart tells the manager, without the parts that do not run here."""
        found: Any = self._cluster
        return {"trustDomain": found["trustDomain"], "injection": {**found["injection"], **injection}}

    # -- The processes -----------------------------------------------------------------------------------------------

    def _proxy(self) -> RunningProxy:
        (self.folder / "passwords").write_text("")
        self.broker = RunningMosquitto(self.stack).start()
        self.leaving = RunningMosquitto(self.stack, {"max_packet_size": str(LARGEST)}).start()
        closed = RunningMosquitto(self.stack, {"password_file": str(self.folder / "passwords")}).start()
        self.policies = self.folder / "policies"
        self.policies.mkdir()
        self.policy("all.yaml", document({"name": "all"}))
        application = webapp.start(self.stack)
        mqtt: dict[str, Any] = {"protocol": "mqtt"}
        listeners = [
            inbound("signed", self.broker.port, **mqtt, notarization="signRequest", artifacts={}),
            inbound("plain", self.broker.port, **mqtt, notarization="workload"),
            inbound("stored", self.leaving.port, **mqtt, ack="middleware"),
            inbound("closed", closed.port, **mqtt),
            outbound("out", free_port()),
        ]
        self.ports = {each["name"]: port_of(each) for each in listeners}
        return RunningProxy(
            self.authority,
            f"127.0.0.1:{application}",
            listeners=listeners,
            notary={"receiptsPerSecond": 2, "receiptsBurst": 2, "rateWait": "20s"},
            settings={
                "policy": {"files": [f"{self.policies}/*.yaml"]},
                "mqttBuffer": {"path": str(self.folder / "buffer" / "mqtt.db")},
            },
        )

    def _fetched(self) -> Credentials:
        return Credentials.fetch(self.authority, short_folder(self.stack), "/ns/shop/sa/web")

    def policy(self, name: str, text: str) -> None:
        """Write a policy of the proxy."""
        new = self.policies / "new"
        new.write_text(text)
        new.rename(self.policies / name)

    # -- What the API server knows -----------------------------------------------------------------------------------

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.server.kubectl("apply", "-f", "-", data=text)

    def _reader(self) -> Callable[[], list[dict[str, Any]]]:
        """Reads the cluster with the rights of a Prometheus."""
        account = "system:serviceaccount:monitoring:prometheus"
        rights = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "prometheus"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["services", "endpoints", "pods"],
                    "verbs": ["get", "list", "watch"],
                }
            ],
        }
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "prometheus"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "prometheus"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": account}],
        }
        self.apply(rights, binding)
        user = ("--kubeconfig", str(self.server.credentials(account)))
        command = ("get", "pods,services,endpoints", "--all-namespaces", "-o", "json", *user)
        return lambda: json.loads(self.server.kubectl(*command))["items"]

    def _publish(self) -> None:
        """Make the Services and pods of the chart and a pod with a proxy, and say where they are."""
        services = [each for each in self.chart.of("Service") if each["metadata"]["namespace"] == "svc-system"]
        self.apply(*services)
        for name, workload in self.chart.workloads.items():
            template = self.chart.pod(name)
            metadata = {**template["metadata"], "name": f"{name}-0", "namespace": "svc-system"}
            claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())]
            template["spec"].setdefault("volumes", []).extend(
                {"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}-0"}} for each in claims
            )
            self.run({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}, services)
        namespace = {"name": "shop", "labels": {"svc.internal/injection": "enabled"}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        self.run(self.pod("api", "8443:8080/http"), [])

    def pod(self, name: str, ports: str) -> dict[str, Any]:
        """A pod that gets a proxy by the webhook; no admission gives it a service account here."""
        pod = restricted({"spec": {"serviceAccountName": "default", "containers": [{"name": "web"}]}})
        pod["metadata"] = {"name": name, "namespace": "shop", "annotations": {"svc.internal/ports": ports}}
        return pod

    def run(self, pod: dict[str, Any], services: Iterable[dict[str, Any]]) -> None:
        """Create a pod, and say what its kubelet and the controller of endpoints would say."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        text = self.server.kubectl("create", "-f", "-", "-o", "json", data=json.dumps(pod))
        made = json.loads(text)
        addresses = {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        status = json.dumps({"status": {"phase": "Running", **addresses}})
        self.server.kubectl("patch", "pod", name, "-n", namespace, "--subresource=status", "-p", status)
        named = {
            port.get("name"): port["containerPort"]
            for container in made["spec"]["containers"]
            for port in container.get("ports", ())
        }
        for service in services:
            selector = service["spec"].get("selector", {}).items()
            if not selector <= made["metadata"].get("labels", {}).items():
                continue
            target = {"kind": "Pod", "namespace": namespace, "name": name, "uid": made["metadata"]["uid"]}
            self.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Endpoints",
                    # The controller copies the labels of the Service.
                    "metadata": {key: service["metadata"].get(key) for key in ("name", "namespace", "labels")},
                    "subsets": [
                        {
                            "addresses": [{"ip": self.address, "targetRef": target}],
                            "ports": [
                                {
                                    "name": port["name"],
                                    "port": named.get(port.get("targetPort"), port.get("targetPort")),
                                }
                                for port in service["spec"]["ports"]
                            ],
                        }
                    ],
                }
            )

    # -- Events ------------------------------------------------------------------------------------------------------

    def connect(self) -> RawConnection:
        """A client of the proxy that stays until the event is over."""
        connection = RawConnection(self.proxy.port, self.web)
        self.open.callback(connection.close)
        return connection

    def client(self, listener: str, code: int = 0, **connect: Any) -> RawClient:
        """A client of MQTT that stays until the event is over."""
        client = self.open.enter_context(RawClient(self.ports[listener], tls=self.web.context().wrap_socket))
        answer = client.connect("meter", **connect)
        assert isinstance(answer, Connack) and answer.code == code, answer
        return client

    def send(self, listener: str, payload: bytes = b"1", **connect: Any) -> None:
        """Publish a message that is acknowledged."""
        client = self.client(listener, **connect)
        client.send(Publish("readings", payload, 1, packet_id=1))
        answer = client.receive()
        assert getattr(answer, "code", 0x80) < 0x80, answer

    def passing_time(self) -> None:
        """A second passes; there is no license yet, and at the addresses of SPIRE nothing runs."""
        time.sleep(1)

    def request(self) -> None:
        """A client sends a request that is signed, asks for statements, and stays."""
        connection = self.connect()
        assert connection.request("/bytes/10", fields=SIGN).status == 200
        assert connection.request(NOTARY.removesuffix("/v1")).status == 200

    def records_beyond_the_rate(self) -> None:
        """A client wants more records at once than an identity may have."""
        connection = self.connect()
        for _turn in range(5):
            assert connection.request("/bytes/1", fields=SIGN).status == 200

    def clients_without_certificate(self) -> None:
        """Clients present no certificate, many of them in a second."""
        for _turn in range(20):
            attempt(self.proxy.port, None)

    def policy_in_dry_run(self) -> None:
        """A policy in dry run is written, and a request comes that it would deny."""
        trial = {"name": "closed", "to": [{"paths": ["/bytes/2"]}]}
        self.policy("trial.yaml", document(trial, action="Deny", mode="DryRun", name="trial"))
        eventually(lambda: len(self.proxy.records("svc.proxy.policy.loaded")) > 1, what="the policy in force")
        assert self.connect().request("/bytes/2").status == 200

    def altered_record(self) -> None:
        """A record of the database was altered, and its client asks for it."""
        nonce, connection = new_nonce(b"0123456789abcdef"), self.connect()
        assert connection.request("/bytes/1", fields=f"{SIGN}Svc-Notary-Nonce: {nonce}\r\n").status == 200
        with closing(sqlite3.connect(self.proxy.config["notary"]["path"], timeout=60)) as database, database:
            database.execute("UPDATE receipt SET disclosures = '{' WHERE nonce = ?", (nonce,))
        answer = connection.request(f"{NOTARY}/receipts/by-request/{nonce}")
        assert answer.status == 503, answer

    def message_with_receipt(self) -> None:
        """A message is forwarded and acknowledged by the broker, which gets its receipt too."""
        self.send("signed")

    def message_at_workload(self) -> None:
        """A message passes at the level workload."""
        self.send("plain")

    def message_for_an_absent_broker(self) -> None:
        """The broker of a session ends, and the proxy keeps its next message."""
        lasting = {"clean_start": False, "properties": Properties(session_expiry=3600)}
        self.send("stored", b"first", **lasting)
        self.open.close()
        self.leaving.stop()
        self.send("stored", b"second", **lasting)

    def broker_that_is_back(self) -> None:
        """It is there again."""
        self.leaving.start()

    def message_too_large_for_the_broker(self) -> None:
        """The proxy has acknowledged a message that the broker does not take."""
        self.send("stored", bytes(2 * LARGEST))

    def session_that_the_broker_refuses(self) -> None:
        """A client has a password that the broker does not know."""
        self.client("closed", 0x87, username="u", password=b"p")

    def license(self) -> None:
        """A license is installed."""
        secret = license_secret(verify_license(text_of(envelope(LICENSE)).encode(), pinned_keys()), "svc-system")
        self.apply(secret)

    def refused_pod(self) -> None:
        """A pod cannot have a proxy."""
        try:
            self.run(self.pod("wrong", "8443"), [])
        except ApiServerFailed as error:
            assert "svc.internal/ports is 8443" in str(error), error
        else:
            raise AssertionError("the pod was not refused")

    def policy_object(self) -> None:
        """Somebody makes a policy of the cluster."""
        made = policy_object("all", authorization=rules())
        made["metadata"] = {"name": "all"}
        self.apply(made)

    def workloads_of_spire(self) -> None:
        """Helm has made the SPIRE of the chart, and all of it is ready."""
        agents = self.chart.one("DaemonSet", "spire-agent")
        self.apply(agents)
        counts = {"desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0}
        self.set_status("daemonset", "spire-agent", **counts)
        self.apply(self.spire_agent(agents))
        self.set_status("pod", "spire-agent", conditions=[{"type": "Ready", "status": "True"}])
        self.apply(self.chart.one("StatefulSet", "spire-server"))
        self.set_status("statefulset", "spire-server", replicas=1, readyReplicas=1)

    def set_status(self, kind: str, name: str, **status: Any) -> None:
        """Set the status of an object, as controllers of Kubernetes do."""
        command = ("patch", kind, name, "-n", "svc-system", "--subresource=status", "--type=merge", "-p")
        self.server.kubectl(*command, json.dumps({"status": status}))

    def spire_agent(self, agents: dict[str, Any]) -> dict[str, Any]:
        """The pod of a DaemonSet."""
        command = ("get", "daemonset", "spire-agent", "-n", "svc-system", "-o", "jsonpath={.metadata.uid}")
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "spire-agent"}
        owner["uid"] = self.server.kubectl(*command)
        metadata = {"name": "spire-agent", "namespace": "svc-system", "ownerReferences": [owner]}
        metadata["labels"] = agents["spec"]["template"]["metadata"]["labels"]
        spec = {"nodeName": "node-a", "containers": [{"name": "spire-agent", "image": "spire-agent"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def changed_configuration(self) -> None:
        """The ConfigMap of the manager changes."""
        metadata = {"name": CONFIG, "namespace": "svc-system"}
        content = {"cluster.yaml": json.dumps(self.cluster(notarization="workload"))}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": content})

    def renewed_svid(self) -> None:
        """Agent and proxy get new SVIDs, by an authority that has started anew."""
        self.authority.halt()
        self.authority.start()
        # It has other roots.
        self.web = self._fetched()

    def workload_api_that_ends(self) -> None:
        """The Workload API is away."""
        self.authority.halt()

    def api_server_that_ends(self) -> None:
        """The API server ends and comes back; Prometheus keeps its targets meanwhile."""
        self.server.kill()
        self.server.start()

    def processes_that_end(self) -> None:
        """All three end as by a crash, while their pods are there; they are back behind the event."""
        for each in (self.manager, self.agent, self.proxy):
            each.kill()
            self.open.callback(each.start)
        self.open.callback(self.authority.start)


SHARED = Shared(Site)


def families() -> set[str]:
    """All families of the three processes, as :class:`Row` names them."""
    registry = CollectorRegistry()
    ManagerMetrics(registry, CONTROLLERS)
    AgentMetrics(registry, lambda: LICENSE.not_after)
    ProxyMetrics(registry).mqtt()
    counters = {"counter": "_total"}
    found = {family.name + counters.get(family.type, "") for family in registry.collect()}
    # These have collectors of their own, which need a source of identities.
    return found | {"svc_agent_svid_expiry_seconds", "svc_proxy_svid_not_after_seconds"}


class DiscoveryTests(SynchronousTestCase):
    """The monitors of the chart are enough."""

    def setUp(self) -> None:
        """Wait until Prometheus has scraped all three."""
        self.site: Site = SHARED.get()
        self.ask = self.site.prometheus.ask
        eventually(
            lambda: self.up() >= {"svc-manager": 1.0, "svc-agent": 1.0, "svc-proxy": 1.0}.items(), what="scrapes"
        )

    def up(self) -> set[tuple[str, float]]:
        """The jobs, and whether their targets answer."""
        found = self.ask("max by (job) (up)")
        return {(json.loads(labels)["job"], value) for labels, value in found.items()}

    def test_jobs(self) -> None:
        """Each target has the job that the alerts name and where it is; there is no other one than those of SPIRE."""
        eventually(lambda: len(self.up()) == 5, what="all targets")
        self.assertEqual(
            {"svc-manager", "svc-agent", "svc-proxy", "spire-server", "spire-agent"}, {job for job, _ in self.up()}
        )
        self.assertEqual(5, len(self.ask("up")))
        for job, namespace, pod in (("svc-manager", "svc-system", "svc-manager-0"), ("svc-proxy", "shop", "api")):
            [labels] = [json.loads(each) for each in self.ask(f'up{{job="{job}"}}')]
            self.assertEqual((namespace, pod), (labels["namespace"], labels["pod"]))

    def test_other_label_or_port(self) -> None:
        """A monitor whose label or port differs from that of the objects finds all of them, and selects none."""
        pools = self.site.prometheus.pools()
        for monitor, kept in (("serviceMonitor/svc-system/svc-core", 4), ("podMonitor/svc-system/svc-proxy", 1)):
            found, selected = pools[f"{monitor}/0"]
            self.assertEqual(kept, selected)
            for what in ("label", "port"):
                self.assertEqual((found, 0), pools[f"{monitor}-other-{what}/0"])

    def test_table(self) -> None:
        """Every family is in the table or has its test elsewhere, which is there."""
        named = {row.family for row in TABLE}
        self.assertEqual(families(), named | set(ELSEWHERE))
        self.assertEqual(set(), named & set(ELSEWHERE))
        for name in ELSEWHERE.values():
            self.assertTrue(callable(namedAny(name)), name)

    def test_events(self) -> None:
        """The samples of each row move by its event, and its alerts fire; one that fails hides no other."""
        still: list[str] = []
        for event in dict.fromkeys([*(row.event for row in TABLE), *FIRES]):
            still += self.unmoved(event)
        self.assertEqual([], still)

    def unmoved(self, event: str) -> list[str]:
        """Let something happen; returns what it was to move and has not."""
        rows = [row for row in TABLE if row.event == event]
        before = {row: self.value(row) for row in rows}
        quiet = set(FIRES.get(event, ()))

        def unmoved() -> list[str]:
            after = {row: self.value(row) for row in rows}
            # It counts that an alert has fired: its window of seconds may be over when all samples are there.
            quiet.difference_update(json.loads(each)["alertname"] for each in self.ask('ALERTS{alertstate="firing"}'))
            return [
                f"{event}: {row.query} was {before[row]} and is {after[row]}"
                for row in rows
                if not (after[row] < before[row] if row.falls else after[row] > before[row])
            ] + [f"{event}: {name} does not fire" for name in quiet]

        try:
            getattr(self.site, event)()
            eventually(lambda: not unmoved(), 30)
        except NotInTime:
            return unmoved()
        except AssertionError as error:
            return [f"{event}: {error}"]
        finally:
            self.site.open.close()
        return []

    def value(self, row: Row) -> float:
        """Ask Prometheus."""
        [value] = eventually(lambda: list(self.ask(row.query).values()), what=row.query)
        return value
