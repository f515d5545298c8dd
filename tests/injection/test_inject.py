"""Pods in, pods out: what is kept, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.injection import ReviewInvalid, inject
from svc.injection.container import MAX_CONFIG
from tests.injection.documents import SETTINGS, TRUST_DOMAIN, Document, injected, proxy_of, variables
from tests.injection.expansion import loaded
from tests.refusals import assert_refused

PORTS = "svc.internal/ports"
OURS = {"svc-state", "svc-workload-api", "svc-policies", "svc-policies-compiled"}


def pod_of(*containers: Document, **spec: object) -> Document:
    """A pod with ports and these containers, by default one."""
    return {
        "metadata": {"annotations": {PORTS: "8443:8080/http"}},
        "spec": {"containers": [*containers] or [{"name": "web"}], **spec},
    }


def foreign(pod: Document) -> Document:
    """A pod without what the webhook owns, and without the difference between empty and absent."""
    pod = copy.deepcopy(pod)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["labels"] = {k: v for k, v in (metadata.get("labels") or {}).items() if k != "svc.internal/proxy-injected"}
    metadata["annotations"].pop("kubectl.kubernetes.io/default-container", None)
    spec["initContainers"] = [each for each in spec.get("initContainers") or [] if each["name"] != "svc-proxy"]
    spec["volumes"] = [each for each in spec.get("volumes") or [] if each["name"] not in OURS]
    for container in spec["containers"]:
        lifecycle = container.get("lifecycle") or {}
        if (lifecycle.get("preStop") or {}).keys() <= {"sleep"}:
            lifecycle.pop("preStop", None)
        container["lifecycle"] = lifecycle
    return pod


def defaulted(pod: Document) -> Document:
    """A pod as the API server keeps it: with defaults, and mounts and variables that others have added."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("volumeMounts", []).append({"name": "token", "mountPath": "/var/run/secrets"})
        container.setdefault("env", []).append({"name": "TRACING", "value": "on"})
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                container[probe].setdefault("successThreshold", 1)
    spec.setdefault("terminationGracePeriodSeconds", 30)
    return pod


names = st.text("abcdefgh-", min_size=1, max_size=8).filter(lambda name: name[0] != "-" != name[-1])
hooks = st.sampled_from([{}, {"preStop": {"exec": {"command": ["a"]}}}, {"postStart": {"sleep": {"seconds": 1}}}])
containers = st.fixed_dictionaries(
    {"name": names, "image": names},
    optional={
        "lifecycle": st.none() | hooks,
        "ports": st.none() | st.lists(st.builds(dict, containerPort=st.integers(1, 1023), name=names), max_size=2),
        "env": st.lists(st.builds(dict, name=names, value=st.text(max_size=8)), max_size=2),
        "resources": st.just({"limits": {"memory": "1Gi"}}),
    },
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
maps = st.dictionaries(names.map("example.org/{}".format), texts, max_size=3)
pods = st.builds(
    lambda annotations, metadata, spec: {"metadata": {"annotations": annotations, **metadata}, "spec": spec},
    maps.map(lambda found: {**found, PORTS: "8443:8080/http, 8883:1883/mqtt"}),
    st.fixed_dictionaries({}, optional={"name": names, "generateName": names, "labels": st.none() | maps}),
    st.fixed_dictionaries(
        {"containers": st.lists(containers, min_size=1, max_size=3)},
        optional={
            "initContainers": st.none() | st.lists(containers, max_size=3),
            "volumes": st.none() | st.lists(st.builds(dict, name=names, emptyDir=st.just({})), max_size=3),
            "terminationGracePeriodSeconds": st.integers(0, 60),
            "nodeSelector": maps,
        },
    ),
)


class UserTests(SynchronousTestCase):
    """The user of the proxy."""

    def test_user_that_the_cluster_chooses(self) -> None:
        """Without a fixed user the proxy is still not root, and the cluster names its user."""
        settings = SETTINGS.model_copy(update={"fixedUser": False})
        security = proxy_of(injected(pod_of(), settings))["securityContext"]
        self.assertEqual({"runAsNonRoot": True}, {key: security[key] for key in security if key.startswith("runAs")})


class AnyPodTests(SynchronousTestCase):
    """What holds for each pod."""

    @given(pods)
    def test_idempotent(self, pod: Document) -> None:
        """A second call changes nothing."""
        once = injected(pod)
        self.assertEqual(once, injected(once))

    @given(pods)
    @settings(suppress_health_check=[HealthCheck.too_slow])
    def test_idempotent_after_defaults(self, pod: Document) -> None:
        """After defaults and other webhooks the second call makes our part as it was, and keeps theirs."""
        once = injected(pod)
        between = defaulted(once)
        between["spec"]["initContainers"].insert(0, {"name": "other"})
        again = injected(between)
        self.assertEqual(proxy_of(once), proxy_of(again))
        self.assertEqual(foreign(between), foreign(again))
        self.assertEqual(again, injected(again))

    @given(pods)
    def test_foreign_parts(self, pod: Document) -> None:
        """What the webhook does not own is as before, and the order of everything."""
        before = copy.deepcopy(pod)
        result = injected(pod)
        self.assertEqual(before, pod)
        self.assertEqual(foreign(pod), foreign(result))
        self.assertEqual("svc-proxy", proxy_of(result)["name"])
        self.assertEqual(OURS, {each["name"] for each in result["spec"]["volumes"][-len(OURS) :]})

    @given(st.text(max_size=40))
    @settings(max_examples=40)
    def test_any_level(self, text: str) -> None:
        """Any text of an annotation is read by the proxy as it was written; only NUL is refused."""
        pod = pod_of()
        pod["metadata"]["annotations"] |= {"mls.svc.internal/level": text, "example.org/other": "\0"}
        if "\0" in text:
            assert_refused(self, "injection_facts", inject, pod, SETTINGS, TRUST_DOMAIN)
            return
        self.assertEqual(text, loaded(injected(pod)).workload.annotations["mls.svc.internal/level"])


class EndTests(SynchronousTestCase):
    """How long an application goes on."""

    def test_grace(self) -> None:
        """At most half of the grace; a pod with less than 8 seconds has a warning, and without time for it no sleep."""
        for grace, seconds in ((None, 4), (60, 4), (8, 4), (7, 3), (2, 1), (1, 0), (0, 0)):
            pod = pod_of(terminationGracePeriodSeconds=grace)
            found = injected(pod)["spec"]["containers"][0].get("lifecycle")
            self.assertEqual({"preStop": {"sleep": {"seconds": seconds}}} if seconds else None, found, grace)
            self.assertEqual(seconds < 4, bool(inject(pod, SETTINGS, TRUST_DOMAIN).warnings))


class SizeTests(SynchronousTestCase):
    """Large pods."""

    def test_limit(self) -> None:
        """A configuration of the limit is read by the proxy; one octet more is refused."""
        pod = pod_of()
        pod["metadata"]["labels"] = {f"example.org/{number:058}": "v" * 63 for number in range(700)} | {"rest": ""}
        used = len(variables(proxy_of(injected(pod)))["SVC_CONFIG"].encode())
        pod["metadata"]["labels"]["rest"] = "w" * (MAX_CONFIG - used)
        result = injected(pod)
        self.assertEqual(MAX_CONFIG, len(variables(proxy_of(result))["SVC_CONFIG"].encode()))
        self.assertEqual(result["metadata"]["labels"], loaded(result).workload.labels)
        pod["metadata"]["labels"]["rest"] += "w"
        error = assert_refused(self, "injection_too_large", inject, pod, SETTINGS, TRUST_DOMAIN)
        self.assertEqual((MAX_CONFIG + 1, MAX_CONFIG), (error.evidence["size"], error.evidence["limit"]))

    def test_large_pod(self) -> None:
        """The patch of a pod of 200 kB is as small as that of any other."""
        plain = pod_of()
        large = pod_of({"name": "web", "env": [{"name": f"V{number}", "value": "v" * 180} for number in range(1000)]})
        large["metadata"]["annotations"]["example.org/text"] = "t" * 20000
        self.assertGreater(len(json.dumps(large)), 200_000)
        small, other = (len(json.dumps(inject(each, SETTINGS, TRUST_DOMAIN).operations)) for each in (plain, large))
        self.assertLess(other - small, 100)


class RefusalTests(SynchronousTestCase):
    """Pods that cannot have the proxy."""

    def test_shared(self) -> None:
        """Ports of the node, and processes of others."""
        for key in ("hostNetwork", "hostPID", "shareProcessNamespace"):
            error = assert_refused(self, "injection_shared", inject, pod_of(**{key: True}), SETTINGS, TRUST_DOMAIN)
            self.assertIn(f"{key}: true", str(error))
            self.assertTrue(inject(pod_of(**{key: False}), SETTINGS, TRUST_DOMAIN).operations)

    def test_ports_taken(self) -> None:
        """Ports that a container declares, and those of the proxy itself; UDP is another matter."""
        for given_ports, declared, protocol, sentence in (
            ("8443:8080/http", 8443, "TCP", "the port 8443 is for the container web"),
            ("8443:8080/http", 8443, None, "the port 8443 is for the container web"),
            ("9092:8080/http", 8080, None, "the port 9092 is for the proxy's metrics"),
            ("9910:8080/http", 8080, None, "the port 9910 is for the proxy's probes"),
            ("8443:9902/http", 8080, None, "the port 9902 is for the proxy's pages for operators"),
            ("8443:8080/http", 9092, "TCP", "the port 9092 is for the proxy's metrics, not the container web"),
            ("8443:8080/http", 8443, "UDP", ""),
            ("8443:8080/http", 8080, "TCP", ""),
        ):
            container = {"name": "web", "ports": [{"containerPort": declared, "protocol": protocol}]}
            for pod in (pod_of(container), pod_of({"name": "app"}, initContainers=[container])):
                pod["metadata"]["annotations"][PORTS] = given_ports
                if sentence:
                    error = assert_refused(self, "injection_port_taken", inject, pod, SETTINGS, TRUST_DOMAIN)
                    self.assertEqual(sentence, str(error))
                else:
                    self.assertTrue(inject(pod, SETTINGS, TRUST_DOMAIN).operations)

    def test_names_taken(self) -> None:
        """A container or volume with a name of ours is ours only where an earlier injection has made it."""
        other: Document = {"name": "svc-proxy", "image": "other:1"}
        ours = {**other, "env": [{"name": "SVC_CONFIG", "value": ""}]}
        volume = {"name": "svc-state", "emptyDir": {}}
        labels = {"svc.internal/proxy-injected": "true"}
        for pod, made, name in (
            (pod_of(other), labels, "container svc-proxy"),
            (pod_of(ours), labels, "container svc-proxy"),
            (pod_of(initContainers=[other]), labels, "init container svc-proxy"),
            (pod_of(initContainers=[ours]), {}, "init container svc-proxy"),
            (pod_of(initContainers=[ours]), {"svc.internal/proxy-injected": "false"}, "init container svc-proxy"),
            (pod_of(volumes=[volume]), labels, "volume svc-state"),
            (pod_of(volumes=[volume], initContainers=[ours]), {}, "init container svc-proxy"),
        ):
            pod["metadata"]["labels"] = made
            error = assert_refused(self, "injection_name_taken", inject, pod, SETTINGS, TRUST_DOMAIN)
            self.assertIn(f"a {name} that", str(error))

    def test_facts(self) -> None:
        """A compartment that no statement can contain; one of the longest is accepted."""
        pod = pod_of()
        pod["metadata"]["annotations"]["mls.svc.internal/compartment"] = "c" * 1024
        loaded(injected(pod))
        pod["metadata"]["annotations"]["mls.svc.internal/compartment"] += "c"
        error = assert_refused(self, "injection_facts", inject, pod, SETTINGS, TRUST_DOMAIN)
        self.assertIn("annotations/mls.svc.internal/compartment", str(error))

    def test_shapes(self) -> None:
        """What is not a pod is named by the place that shows it."""
        for change, place in (
            ({"metadata": None}, "metadata"),
            ({"spec": []}, "spec"),
            ({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a"),
            ({"metadata": {"annotations": []}}, "metadata.annotations"),
            ({"spec": {"containers": {}}}, "spec.containers"),
            ({"spec": {"containers": [{"image": "web"}]}}, "spec.containers.0.name"),
            ({"spec": {"containers": [], "hostNetwork": "true"}}, "spec.hostNetwork"),
            ({"spec": {"initContainers": [{"name": "a", "ports": [{"containerPort": "1"}]}]}}, "spec.initContainers.0"),
        ):
            pod: dict[str, Any] = {**pod_of(), **change}
            error = self.assertRaises(ReviewInvalid, inject, pod, SETTINGS, TRUST_DOMAIN)
            self.assertIn(f"answered: {place}", str(error))


class SourceTests(SynchronousTestCase):
    """The folder of the Workload API."""

    def test_source(self) -> None:
        """That of the argument stands above that of the settings; both may be the agent's default."""
        plain = SETTINGS.model_copy(update={"source": ""})
        for chosen, source, expected in ((SETTINGS, "", "5f0c3b7a"), (SETTINGS, "b", "b"), (plain, "", None)):
            [add] = [
                each
                for each in inject(pod_of(), chosen, TRUST_DOMAIN, source).operations
                if each["path"] == "/spec/volumes"
            ]
            self.assertIn(f"'source': {expected!r}" if expected else "'readOnly': True}", str(add["value"]))
