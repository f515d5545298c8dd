"""What is wrong between the pods of a cluster and their identities. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from svc.checks.facts import API_SERVER, CLOCK, ClusterFacts, Object, conditions, holds, metadata
from svc.checks.model import Check, Defect, Found, Level, ago, found
from svc.checks.preflight import RESOURCE_VERSION
from svc.checks.webhook import WEBHOOK
from svc.kube.kinds import (
    CLUSTER_POLICIES,
    CLUSTERS,
    CSI_DRIVERS,
    CSI_NODES,
    CUSTOM_RESOURCES,
    DAEMON_SETS,
    DEPLOYMENTS,
    FOREIGN_CLUSTERS,
    LICENSE_STATUS_NAME,
    LICENSE_STATUSES,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    SPIRE_INSTANCES,
    STATEFUL_SETS,
    Kind,
)
from svc.kube.times import from_time
from svc.naming import (
    ANNOTATION_INJECT,
    AUTHORITY,
    CSI_DRIVER,
    LABEL_INJECTED,
    MANAGER,
    PROXY_CONTAINER,
)

#: The custom resources of this version.
RESOURCES: Final = tuple(
    sorted(map(str, (CLUSTER_POLICIES, CLUSTERS, FOREIGN_CLUSTERS, LICENSE_STATUSES, POLICIES, SPIRE_INSTANCES)))
)
#: The manager writes the status of licenses at least each minute.
_LICENSE_STALE: Final = timedelta(minutes=3)
#: Within which a pod starts, and a controller sees an object.
_STARTS: Final = timedelta(minutes=2)
_CURRENT_LICENSES: Final = ("Valid",)
_ENDING_LICENSES: Final = ("ExpiringSoon", "Grace", "OverLimit")


def _resources(facts: ClusterFacts) -> Iterator[Found]:
    for name in RESOURCES:
        each = facts.named(CUSTOM_RESOURCES, name)
        if each is None:
            yield found("missing", name=name)
        elif not any(v["name"] == RESOURCE_VERSION and v.get("served") for v in each["spec"].get("versions") or ()):
            yield found("not_served", name=name, version=RESOURCE_VERSION)
        elif not holds(each, "Established"):
            yield found("not_established", name=name)


def _ready(kind: Kind, name: str) -> Check[ClusterFacts]:
    """Return the check of one workload of the installation."""
    titles = {
        MANAGER: "the manager runs",
        AUTHORITY: "the post-quantum issuer runs",
        "spire-server": "the SPIRE server runs",
        "spire-agent": "the SPIRE agent runs on each node",
        "svc-agent": "svc-agent runs on each node",
    }

    def find(facts: ClusterFacts) -> Iterator[Found]:
        each = facts.named(kind, name)
        if each is None:
            yield found("missing", name=name, namespace=facts.namespace)
            return
        status, spec = each.get("status") or {}, each.get("spec") or {}
        if kind is DAEMON_SETS:
            wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        else:
            wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
        evidence = {"kind": kind.name.lower(), "name": name, "namespace": facts.namespace, "ready": ready}
        if not wanted:
            yield found("none_wanted", **evidence)
        elif not ready:
            yield found("none_ready", wanted=wanted, **evidence)
        elif ready < wanted:
            yield found("some_ready", wanted=wanted, **evidence)

    look = "kubectl describe {kind} -n {namespace} {name}, and kubectl logs -n {namespace} {kind}/{name}, say why"
    return Check(
        name,
        titles[name],
        find,
        {
            "missing": Defect(
                "there is no {name} in the namespace {namespace}",
                "install the chart svc-core there; with svc check --pre first",
            ),
            "none_wanted": Defect(
                "no pod of {name} is wanted", "raise its replicas, or let a node have it: its labels and taints decide"
            ),
            "none_ready": Defect("none of the {wanted} pod(s) of {name} is ready", look),
            "some_ready": Defect("{ready} of the {wanted} pods of {name} are ready", look, Level.WARNING),
        },
    )


def _driver(facts: ClusterFacts) -> Iterator[Found]:
    if facts.named(CSI_DRIVERS, CSI_DRIVER) is None:
        yield found("missing", driver=CSI_DRIVER)
        return
    registered = {
        each["metadata"]["name"]
        for each in facts.of(CSI_NODES)
        if any(driver["name"] == CSI_DRIVER for driver in (each.get("spec") or {}).get("drivers") or ())
    }
    for node in facts.of(NODES):
        name, about = node["metadata"]["name"], (node.get("status") or {}).get("nodeInfo") or {}
        if about.get("operatingSystem", "linux") == "linux" and holds(node, "Ready") and name not in registered:
            yield found("not_registered", driver=CSI_DRIVER, node=name, namespace=facts.namespace)


def _lives(pod: Object) -> bool:
    """Whether a pod has not ended and is not to end."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def _uninjected(facts: ClusterFacts) -> Iterator[Found]:
    facts.of(NAMESPACES)
    for pod in facts.of(PODS):
        about = {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]}
        if not _lives(pod) or metadata(pod, "labels").get(LABEL_INJECTED) == "true":
            continue
        if metadata(pod, "annotations").get(ANNOTATION_INJECT) == "false":
            continue
        yield found("no_proxy", **about)


def _injected(facts: ClusterFacts) -> Iterator[Found]:
    for pod in facts.of(PODS):
        if metadata(pod, "labels").get(LABEL_INJECTED) == "true" and _lives(pod) and not holds(pod, "Ready"):
            yield _unready(pod, facts.now)


def _unready(pod: Object, now: datetime) -> Found:
    """Return why a pod is not ready: what was not scheduled, then its proxy, then what waits, then its application."""
    about = {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"], "proxy": PROXY_CONTAINER}
    status = pod.get("status") or {}
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return found("not_scheduled", why=scheduled.get("message") or scheduled.get("reason") or "not known", **about)
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [each for each in states if not each.get("ready")]
    made = from_time(pod["metadata"].get("creationTimestamp"))
    young = made is not None and now - made < _STARTS
    for each in waiting:
        if each["name"] == PROXY_CONTAINER and (why := _failure(each)):
            return found("proxy_failed", why=why, **about)
    if young:
        return found("starting", **about)
    proxy = next((each for each in states if each["name"] == PROXY_CONTAINER), None)
    if proxy is None or "running" not in (proxy.get("state") or {}):
        return found("not_started", age="" if made is None else f" for {ago(made, now)}", **about)
    if not proxy.get("ready"):
        return found("proxy_not_ready", **about)
    names = ", ".join(each["name"] for each in waiting) or "its readiness gates"
    return found("application", containers=names, **about)


def _failure(state: Object) -> str:
    """Return why a container does not run; nothing where it waits for the pod alone."""
    waits, ended = (state.get("state") or {}).get("waiting") or {}, (state.get("state") or {}).get("terminated") or {}
    reason = waits.get("reason") or ended.get("reason") or ""
    if reason in ("", "ContainerCreating", "PodInitializing"):
        return ""
    text = waits.get("message") or ended.get("message") or ""
    return f"{reason}: {text}" if text else str(reason)


def _license(facts: ClusterFacts) -> Iterator[Found]:
    item = facts.named(LICENSE_STATUSES, LICENSE_STATUS_NAME)
    status = (item or {}).get("status") or {}
    observed, state = from_time(status.get("observedTime")), status.get("state")
    if observed is None or not state:
        yield found("unknown", namespace=facts.namespace)
        return
    if facts.now - observed > _LICENSE_STALE:
        yield found("stale", age=ago(observed, facts.now), namespace=facts.namespace)
    if state in _ENDING_LICENSES:
        yield found("ending", state=state)
    elif state not in _CURRENT_LICENSES:
        yield found("not_valid", state=state, reason=f" ({status['reason']})" if status.get("reason") else "")


def _policies(facts: ClusterFacts) -> Iterator[Found]:
    for kind in (CLUSTER_POLICIES, POLICIES):
        for item in facts.of(kind):
            about = {"kind": kind.name, "name": _full_name(item)}
            if not _seen(item, "Accepted"):
                yield found("not_seen", **about)
                continue
            for condition, code in (("Accepted", "not_accepted"), ("Programmed", "not_programmed")):
                if not holds(item, condition):
                    yield found(code, why=_why(item, condition), **about)
                    break
            else:
                if holds(item, "Conflicted"):
                    yield found("conflicted", why=_why(item, "Conflicted"), **about)


def _seen(item: Object, condition: str) -> bool:
    """Whether the manager has judged an object as it is now."""
    judged = conditions(item).get(condition)
    return judged is not None and judged.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)


def _full_name(item: Object) -> str:
    namespace = item["metadata"].get("namespace")
    return f"{namespace}/{item['metadata']['name']}" if namespace else item["metadata"]["name"]


def _why(item: Object, condition: str) -> str:
    judged = conditions(item).get(condition, {})
    return judged.get("message") or judged.get("reason") or "not known"


def _foreign(facts: ClusterFacts) -> Iterator[Found]:
    for item in facts.of(FOREIGN_CLUSTERS):
        name = item["metadata"]["name"]
        if not conditions(item):
            yield found("not_seen", name=name)
            continue
        if not holds(item, "Ready"):
            yield found("not_ready", name=name, why=_why(item, "Ready"))
            continue
        for kind, condition in conditions(item).items():
            if condition.get("status") == "False":
                yield found("degraded", name=name, condition=kind, why=_why(item, kind))


CHECKS: Final[tuple[Check[ClusterFacts], ...]] = (
    API_SERVER,
    CLOCK,
    Check(
        "custom-resources",
        "the custom resources are served",
        _resources,
        {
            "missing": Defect("there is no {name}", 'kubectl apply --server-side -f "$(svc files crds)"'),
            "not_served": Defect(
                "{name} does not serve the version {version}", 'kubectl apply --server-side -f "$(svc files crds)"'
            ),
            "not_established": Defect("{name} is not established", "kubectl describe crd {name} says why"),
        },
    ),
    _ready(DEPLOYMENTS, MANAGER),
    _ready(STATEFUL_SETS, "spire-server"),
    _ready(DEPLOYMENTS, AUTHORITY),
    _ready(DAEMON_SETS, "spire-agent"),
    _ready(DAEMON_SETS, "svc-agent"),
    Check(
        "csi-driver",
        "each node has the CSI driver",
        _driver,
        {
            "missing": Defect("there is no CSI driver {driver}", "install the chart svc-core again: it makes it"),
            "not_registered": Defect(
                "the node {node} has no CSI driver {driver}: pods there wait for their volume",
                "kubectl get pods -n {namespace} -o wide shows whether svc-agent runs there; agent.kubeletDir of the "
                "chart must be the folder of its kubelet",
            ),
        },
    ),
    WEBHOOK,
    Check(
        "pods-without-proxy",
        "each pod of the enabled namespaces has the proxy",
        _uninjected,
        {
            "no_proxy": Defect(
                "the pod {namespace}/{name} has no proxy",
                "it was made before the namespace was enabled, or while the webhook was away: make it again (kubectl "
                "rollout restart -n {namespace} for its Deployment), or annotate it with svc.internal/inject=false",
            )
        },
    ),
    Check(
        "injected-pods",
        "each pod with the proxy is ready",
        _injected,
        {
            "proxy_failed": Defect(
                "the proxy of the pod {namespace}/{name} does not run: {why}",
                "kubectl logs -n {namespace} {name} -c {proxy} --previous says why",
            ),
            "proxy_not_ready": Defect(
                "the proxy of the pod {namespace}/{name} runs and is not ready",
                "kubectl logs -n {namespace} {name} -c {proxy} names what is missing: often its registration entry, as "
                "spire-server entry show in the pod of the SPIRE server lists them",
            ),
            "not_started": Defect(
                "the pod {namespace}/{name} has not started{age}",
                "kubectl describe pod -n {namespace} {name} shows events: a volume that is not mounted is that "
                "of the CSI driver, see csi-driver and svc-agent",
            ),
            "not_scheduled": Defect(
                "the pod {namespace}/{name} is on no node: {why}", "give it a node with room for it", Level.WARNING
            ),
            "starting": Defect("the pod {namespace}/{name} is starting", "check again in a minute", Level.WARNING),
            "application": Defect(
                "the pod {namespace}/{name} has its proxy, and is not ready: {containers}",
                "kubectl logs -n {namespace} {name} shows the reason of the application",
                Level.WARNING,
            ),
        },
    ),
    Check(
        "license",
        "the license is valid",
        _license,
        {
            "unknown": Defect(
                "the state of the license is not known",
                "the manager writes it: kubectl logs -n {namespace} deployment/svc-manager",
            ),
            "stale": Defect(
                "the state of the license was written {age} ago, and the manager writes it each minute",
                "is a manager running, and is the clock here right? kubectl logs -n {namespace} deployment/svc-manager",
                Level.WARNING,
            ),
            "ending": Defect(
                "the license is in the state {state}",
                "svc license status says what ends or is exceeded; svc license install makes a new one known",
                Level.WARNING,
            ),
            "not_valid": Defect(
                "the license is in the state {state}{reason}",
                "svc license status says more; svc license install makes a new one known",
            ),
        },
    ),
    Check(
        "policies",
        "each policy is in force",
        _policies,
        {
            "not_seen": Defect(
                "the manager has not judged {kind} {name} as it is now",
                "check again in a minute; then look at the log of the manager",
                Level.WARNING,
            ),
            "not_accepted": Defect("{kind} {name} is not valid: {why}", "correct it; svc policy check does so before"),
            "not_programmed": Defect("{kind} {name} is not in force: {why}", "the sentence is the manager's own"),
            "conflicted": Defect(
                "other policies take effects from {kind} {name}: {why}", "correct one of them", Level.WARNING
            ),
        },
    ),
    Check(
        "foreign-clusters",
        "each federated cluster is ready",
        _foreign,
        {
            "not_seen": Defect(
                "the manager has not judged SvcForeignCluster {name} yet",
                "check again in a minute; then look at the log of the manager",
                Level.WARNING,
            ),
            "degraded": Defect(
                "SvcForeignCluster {name} is ready, and {condition} is false: {why}",
                "kubectl describe svcforeignclusters {name} has all conditions",
                Level.WARNING,
            ),
            "not_ready": Defect(
                "SvcForeignCluster {name} is not ready: {why}",
                "kubectl describe svcforeignclusters {name} has all conditions",
            ),
        },
    ),
)
