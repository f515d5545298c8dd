"""Whether a cluster is ready for an installation. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from svc.checks.facts import API_SERVER, CLOCK, ClusterFacts, Right, holds, metadata
from svc.checks.model import Check, Defect, Found, Level, found, read
from svc.checks.variant import variant_of
from svc.kube.kinds import (
    CSI_DRIVERS,
    CUSTOM_RESOURCES,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    STORAGE_CLASSES,
)
from svc.naming import CSI_DRIVER, DEFAULT_NAMESPACE, DOMAIN, MANAGER, WEBHOOK_CONFIGURATION

#: The minor version of Kubernetes from which on containers that start before the others and go on beside them are
#: there without a feature gate; and the oldest that the chart takes.
SIDECARS: Final = (1, 29)
OLDEST: Final = (1, 33)
#: That of our custom resources.
RESOURCE_VERSION: Final = "v1alpha1"
ARCHITECTURES: Final = ("amd64", "arm64")
#: Of a namespace, which Pod Security it enforces; and of what Helm has made, by which release.
ENFORCED: Final = "pod-security.kubernetes.io/enforce"
RELEASE_NAME: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
#: Without a default StorageClass, by the variant of Kubernetes.
_NO_DEFAULT: Final = {"eks": "no_default_eks", "kind": "no_default_kind", "microk8s": "no_default_microk8s"}
_NO_CLASS: Final = "no StorageClass is the default one, so that the SPIRE server gets no volume; there are: {names}"
_MINOR: Final = re.compile(r"v?(\d{1,3})\.(\d{1,4})(?:\D|$)")
_CLUSTER_KINDS: Final = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("storage.k8s.io", "csidrivers"),
)
_NAMESPACED_KINDS: Final = (
    ("", "configmaps"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
)


def needed_rights(namespace: str = DEFAULT_NAMESPACE) -> list[Right]:
    """Return what whoever installs the chart into a namespace must be allowed to do."""
    verbs = ("create", "patch")
    rights = [Right(verb, group, resource) for group, resource in _CLUSTER_KINDS for verb in verbs]
    return rights + [Right(verb, *each, namespace) for each in _NAMESPACED_KINDS for verb in verbs]


def _minor(text: object) -> tuple[int, int] | None:
    match = _MINOR.match(str(text))
    return None if match is None else (int(match[1]), int(match[2]))


def _version(facts: ClusterFacts) -> Iterator[Found]:
    text = read(facts.server).version.get("gitVersion", "")
    version = _minor(text)
    if version is None:
        yield found("unreadable", version=text)
    elif version < SIDECARS:
        yield found("no_sidecars", version=text)
    elif version < OLDEST:
        yield found("old", version=text)


def _nodes(facts: ClusterFacts) -> Iterator[Found]:
    nodes = facts.of(NODES)
    usable = 0
    for node in nodes:
        name, about = node["metadata"]["name"], (node.get("status") or {}).get("nodeInfo") or {}
        system, architecture, kubelet = (
            about.get(key, "") for key in ("operatingSystem", "architecture", "kubeletVersion")
        )
        version = _minor(kubelet)
        if system != "linux":
            yield found("system", name=name, system=system or "not known")
        elif architecture not in ARCHITECTURES:
            yield found("architecture", name=name, architecture=architecture or "not known")
        elif version is None or version < SIDECARS:
            yield found("kubelet", name=name, version=kubelet or "not known")
        elif not holds(node, "Ready"):
            yield found("not_ready", name=name)
        else:
            usable += 1
    if not usable:
        yield found("none", nodes=len(nodes))


def _rights(facts: ClusterFacts) -> Iterator[Found]:
    for right in read(facts.missing_rights):
        yield found("missing", right=right)


def _resources(facts: ClusterFacts) -> Iterator[Found]:
    for each in facts.of(CUSTOM_RESOURCES):
        if each["spec"].get("group") != DOMAIN:
            continue
        name = each["metadata"]["name"]
        versions = sorted(version["name"] for version in each["spec"].get("versions") or ())
        if each["metadata"].get("deletionTimestamp"):
            yield found("ending", name=name)
        elif RESOURCE_VERSION not in versions:
            yield found("version", name=name, versions=", ".join(versions) or "none")
        else:
            yield found("there", name=name, version=RESOURCE_VERSION)


def _namespace(facts: ClusterFacts) -> Iterator[Found]:
    namespace = facts.named(NAMESPACES, facts.namespace)
    if namespace is None:
        yield found("missing", namespace=facts.namespace)
    elif namespace["metadata"].get("deletionTimestamp"):
        yield found("ending", namespace=facts.namespace)
    elif (enforced := metadata(namespace, "labels").get(ENFORCED)) not in (None, "privileged"):
        yield found("restricted", namespace=facts.namespace, enforced=enforced, label=ENFORCED)
    elif enforced is None:
        yield found("not_labelled", namespace=facts.namespace, label=ENFORCED)


def _storage(facts: ClusterFacts) -> Iterator[Found]:
    classes = facts.of(STORAGE_CLASSES)
    names = sorted(each["metadata"]["name"] for each in classes)
    defaults = sorted(
        each["metadata"]["name"] for each in classes if metadata(each, "annotations").get(_DEFAULT_CLASS) == "true"
    )
    if not defaults:
        code = _NO_DEFAULT.get(variant_of(facts), "no_default")
        yield found(code, names=", ".join(names) or "none at all", annotation=_DEFAULT_CLASS)
    elif len(defaults) > 1:
        yield found("several", names=", ".join(defaults), annotation=_DEFAULT_CLASS)


def _release(facts: ClusterFacts) -> Iterator[Found]:
    driver = facts.named(CSI_DRIVERS, CSI_DRIVER)
    manager = facts.named(DEPLOYMENTS, MANAGER)
    first = driver if driver is not None else manager
    if first is not None:
        about = metadata(first, "annotations")
        namespace = about.get(RELEASE_NAMESPACE)
        if namespace is None:
            yield found("not_of_helm", driver=CSI_DRIVER, namespace=facts.namespace)
        elif namespace != facts.namespace:
            yield found("elsewhere", name=about.get(RELEASE_NAME, ""), namespace=namespace)
        else:
            yield found("installed", name=about.get(RELEASE_NAME, ""), namespace=namespace)
    elif facts.named(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION) is not None:
        yield found("left_over", name=WEBHOOK_CONFIGURATION)


CHECKS: Final[tuple[Check[ClusterFacts], ...]] = (
    API_SERVER,
    Check(
        "kubernetes-version",
        "the version of Kubernetes is supported, with native sidecars",
        _version,
        {
            "no_sidecars": Defect(
                "Kubernetes {version} has no native sidecars, as which proxies run",
                "upgrade the cluster to 1.33 or newer",
            ),
            "old": Defect(
                "Kubernetes {version} is older than 1.33, and the chart does not install on it",
                "upgrade the cluster to 1.33 or newer",
            ),
            "unreadable": Defect(
                "{version!r} is no version of Kubernetes",
                "is the server of the kubeconfig an API server? kubectl version shows what it says",
            ),
        },
    ),
    CLOCK,
    Check(
        "nodes",
        "each node runs Linux on a supported architecture, with native sidecars",
        _nodes,
        {
            "none": Defect(
                "none of the {nodes} node(s) can run the proxy", "add a ready node with Linux on amd64 or arm64"
            ),
            "system": Defect(
                "the node {name} runs {system}: no pod there gets an identity",
                "keep what needs one away from it: kubectl taint node {name} os=other:NoSchedule",
                Level.WARNING,
            ),
            "architecture": Defect(
                "there are no images for the node {name}, whose architecture is {architecture}",
                "keep what needs an identity away from it: kubectl taint node {name} arch=other:NoSchedule",
                Level.WARNING,
            ),
            "kubelet": Defect(
                "the kubelet of the node {name} has no native sidecars: its version is {version}",
                "upgrade the node to 1.33 or newer",
            ),
            "not_ready": Defect("the node {name} is not ready", "kubectl describe node {name} says why", Level.WARNING),
        },
    ),
    Check(
        "rights",
        "this user may install",
        _rights,
        {"missing": Defect("this user may not {right}", "install as a user with the ClusterRole cluster-admin")},
    ),
    Check(
        "custom-resources",
        "no custom resources of another version are there",
        _resources,
        {
            "there": Defect(
                "{name} is there already, with the version {version}",
                "it is changed, not made: look at objects of an earlier installation with kubectl get {name} -A",
                Level.WARNING,
            ),
            "version": Defect(
                "{name} is there in other versions: {versions}",
                "upgrade the installation that it belongs to; kubectl delete crd {name} deletes all its objects",
            ),
            "ending": Defect(
                "{name} is being deleted, and does not end",
                "an object has a finalizer that nobody removes: kubectl get {name} -A -o yaml",
            ),
        },
    ),
    Check(
        "namespace",
        "the namespace admits privileged pods",
        _namespace,
        {
            "missing": Defect(
                "there is no namespace {namespace} yet",
                "kubectl create namespace {namespace}, and then kubectl label namespace {namespace} "
                "pod-security.kubernetes.io/enforce=privileged",
                Level.WARNING,
            ),
            "ending": Defect(
                "the namespace {namespace} is being deleted",
                "wait until it is gone; kubectl get namespace {namespace} -o yaml says what keeps it",
            ),
            "restricted": Defect(
                "the namespace {namespace} enforces the Pod Security level {enforced}: the agents of nodes cannot run",
                "kubectl label --overwrite namespace {namespace} {label}=privileged",
            ),
            "not_labelled": Defect(
                "the namespace {namespace} has no label {label}: the cluster's default may refuse the agents of nodes",
                "kubectl label namespace {namespace} {label}=privileged",
                Level.WARNING,
            ),
        },
    ),
    Check(
        "storage-class",
        "there is a default StorageClass",
        _storage,
        {
            "no_default": Defect(_NO_CLASS, "kubectl annotate storageclass NAME {annotation}=true"),
            "no_default_eks": Defect(
                _NO_CLASS,
                "install the add-on aws-ebs-csi-driver, and then kubectl annotate storageclass gp2 {annotation}=true",
            ),
            "no_default_kind": Defect(_NO_CLASS, "kubectl annotate storageclass standard {annotation}=true"),
            "no_default_microk8s": Defect(_NO_CLASS, "microk8s enable hostpath-storage"),
            "several": Defect(
                "several StorageClasses are the default one: {names}; the one that was made last is taken",
                "kubectl annotate storageclass NAME {annotation}-, for all but one",
                Level.WARNING,
            ),
        },
    ),
    Check(
        "release",
        "nothing of an earlier installation is there",
        _release,
        {
            "installed": Defect(
                "the release {name} is installed in the namespace {namespace} already",
                "upgrade it: helm upgrade -n {namespace} {name}; svc check shows whether it works",
                Level.WARNING,
            ),
            "elsewhere": Defect(
                "the release {name} is installed in the namespace {namespace}, and there is one for a cluster",
                "upgrade that one, or remove it first: helm uninstall -n {namespace} {name}",
            ),
            "not_of_helm": Defect(
                "the CSI driver {driver} or the manager in {namespace} is there, and not of Helm",
                "remove what was installed by hand: Helm does not take it over",
            ),
            "left_over": Defect(
                "the webhook {name} is there without a manager: with it no pod of an enabled namespace can be made",
                "kubectl delete mutatingwebhookconfiguration {name}",
            ),
        },
    ),
)
