"""``svc apply`` with the real kubectl and a real API server, and that it reads what ``kubectl apply`` reads."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import threading
from typing import Any, Final

from tests.integration.test_wrapper import WrapperCase

_LABEL: Final = "svc.internal/compartment"
_MARKS: Final = {
    _LABEL: "DE-S-ALPHA",
    "mls.svc.internal/level": "de:s",
    "mls.svc.internal/compartment": "de:alpha",
}
_PODS: Final[dict[str, Any]] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web"}]},
}
_JOB: Final = {"spec": {**_PODS["spec"], "restartPolicy": "Never"}}
_SELECTOR: Final = {"matchLabels": {"app": "web"}}
#: Kinds with templates: their version, specification, and the places that get the compartment.
_WORKLOADS: Final[dict[str, tuple[str, dict[str, Any], tuple[str, ...]]]] = {
    "Deployment": ("apps/v1", {"selector": _SELECTOR, "template": _PODS}, ("spec.template",)),
    "StatefulSet": ("apps/v1", {"selector": _SELECTOR, "serviceName": "w", "template": _PODS}, ("spec.template",)),
    "DaemonSet": ("apps/v1", {"selector": _SELECTOR, "template": _PODS}, ("spec.template",)),
    "ReplicaSet": ("apps/v1", {"selector": _SELECTOR, "template": _PODS}, ("spec.template",)),
    "ReplicationController": ("v1", {"template": _PODS}, ("spec.template",)),
    "Job": ("batch/v1", {"template": _JOB}, ("spec.template",)),
    "CronJob": (
        "batch/v1",
        {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": _JOB}}},
        ("spec.jobTemplate", "spec.jobTemplate.spec.template"),
    ),
    "Pod": ("v1", _PODS["spec"], ()),
    "ConfigMap": ("v1", {}, ()),
}
#: What readers of YAML understand differently.
_YAML: Final = """\
# Comments only.
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scalars, labels: {on: 'on', "2001-01-01": x}}
data: {y: 'yes', n: 'no', a: "012", b: '1:30'}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: anchors
  annotations: &a {x: "1"}
data:
  <<: *a
  twice: first
  twice: second
immutable: off
binaryData: {z: AAE=}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: numbers}
  spec: {ports: [{name: w, port: 0o120, targetPort: 1_000}, {name: x, port: 0x51}, {name: "y", port: 012}]}
---
apiVersion: v1
kind: ConfigMapList
items:
- {metadata: {name: nested}, data: {emoji: "\\U0001F600\\u2028<&>"}}
"""


def object_of(kind: str, name: str = "web", **metadata: Any) -> dict[str, Any]:
    """An object of one of these kinds."""
    version, spec, _places = _WORKLOADS[kind]
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}} | (
        {"spec": spec} if spec else {}
    )


class ApplyCase(WrapperCase):
    """Files, and what the server then has."""

    def file(self, *documents: dict[str, Any], name: str = "objects.json") -> str:
        """Write objects into a file."""
        path = self.home / name
        path.write_text("\n".join(map(json.dumps, documents)))
        return str(path)

    def live(self, what: str, namespace: str = "") -> dict[str, Any]:
        """An object of the server, the first namespace unless another one is named."""
        found: dict[str, Any] = json.loads(
            self.server.kubectl("get", what, "-n", namespace or self.first, "-o", "json")
        )
        return found

    def marks(self, holder: dict[str, Any]) -> dict[str, str]:
        """What an object or a template has of a compartment."""
        metadata = holder.get("metadata", {})
        both = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
        return {key: both[key] for key in _MARKS if key in both}


class WorkloadTests(ApplyCase):
    """Every kind with a template."""

    def test_every_kind(self) -> None:
        """Objects and templates get the compartment; applying them again changes nothing, by either kind of apply."""
        path = self.file(*map(object_of, _WORKLOADS))
        created = self.ran("apply", "-f", path)
        self.assertEqual(len(_WORKLOADS), created.count(" created\n"), created)
        for kind, (_version, _spec, places) in _WORKLOADS.items():
            found = self.live(f"{kind.lower()}/web")
            self.assertEqual(_MARKS, self.marks(found), kind)
            for place in places:
                node = found
                for step in place.split("."):
                    node = node[step]
                self.assertEqual(_MARKS, self.marks(node), (kind, place))
            if "selector" in _spec:
                self.assertEqual(_SELECTOR, found["spec"]["selector"])
        again = self.ran("apply", "-f", path)
        self.assertEqual(len(_WORKLOADS), again.count(" unchanged\n"), again)
        applied = self.ran("apply", "-f", path, "--server-side", "--force-conflicts")
        self.assertEqual(len(_WORKLOADS), applied.count(" serverside-applied\n"), applied)

    def test_pod_template(self) -> None:
        """A PodTemplate, and a custom resource with a place that the configuration names."""
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "rollouts.apply.svc.internal"},
            "spec": {
                "group": "apply.svc.internal",
                "scope": "Namespaced",
                "names": {"kind": "Rollout", "plural": "rollouts"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        self.ran("apply", "-f", self.file(definition))
        self.server.kubectl("wait", "--for=condition=Established", "crd/rollouts.apply.svc.internal", "--timeout=60s")
        self.assertEqual(_MARKS, self.marks(self.live("crd/rollouts.apply.svc.internal")))
        self.config.write_text(f"{self.config.read_text()}podTemplates: {{Rollout.apply.svc.internal: [spec.pods]}}\n")
        rollout = {"apiVersion": "apply.svc.internal/v1", "kind": "Rollout", "metadata": {"name": "r"}}
        template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "p"}, "template": _PODS}
        self.ran("apply", "-f", self.file({**rollout, "spec": {"pods": [{}, {}]}}, template))
        self.assertEqual([_MARKS] * 2, list(map(self.marks, self.live("rollout/r")["spec"]["pods"])))
        self.assertEqual(_MARKS, self.marks(self.live("podtemplate/p")["template"]))

    def test_old_job(self) -> None:
        """A Job from before keeps its template; so does one of ours after a change of the compartment."""
        path = self.file(object_of("Job"))
        self.server.kubectl("apply", "-n", self.first, "-f", path)
        self.ran("apply", "-f", path)
        self.assertEqual(
            (_MARKS, {}), (self.marks(self.live("job/web")), self.marks(self.live("job/web")["spec"]["template"]))
        )
        self.ran("apply", "-f", self.file(object_of("Job", "ours")))
        self.config.write_text(self.config.read_text().replace("ALPHA", "BRAVO"))
        for words in ((), ("--server-side", "--force-conflicts"), ("--dry-run=server",)):
            self.ran("apply", "-f", self.file(object_of("Job"), object_of("Job", "ours")), *words)
        found = self.live("job/ours")
        self.assertEqual("DE-S-BRAVO", self.marks(found)[_LABEL])
        self.assertEqual(_MARKS, self.marks(found["spec"]["template"]))
        self.ran("delete", "job", "ours")
        self.ran("apply", "-f", path, "-f", self.file(object_of("Job", "ours"), name="ours.json"))
        self.assertEqual("DE-S-BRAVO", self.marks(self.live("job/ours")["spec"]["template"])[_LABEL])


class PlaceTests(ApplyCase):
    """Namespaces."""

    def test_namespaces(self) -> None:
        """The namespace of the context is a default, as it is in a kubeconfig; one that is typed has to agree."""
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": self.first}}
        documents = object_of("ConfigMap"), object_of("ConfigMap", namespace=self.second), role
        path = self.file(*documents)
        self.assertEqual(3, self.ran("apply", "-f", path).count(" created\n"))
        self.assertEqual(_MARKS, self.marks(self.live("configmap/web")))
        self.assertEqual(_MARKS, self.marks(self.live("configmap/web", self.second)))
        self.assertNotIn("namespace", json.dumps(self.live(f"clusterrole/{self.first}")["metadata"]))
        self.assertEqual(3, self.ran("apply", "-f", path).count(" unchanged\n"))
        refused = self.svc("apply", "-n", self.first, "-f", path)
        self.assertEqual(1, refused.returncode)
        self.assertIn("does not match the namespace", refused.stderr)
        self.ran("apply", "-n", self.second, "-f", self.file(object_of("ConfigMap", "typed")))
        self.assertEqual(_MARKS, self.marks(self.live("configmap/typed", self.second)))

    def test_prune(self) -> None:
        """``--prune`` removes what is no longer in the files."""
        self.ran("apply", "-f", self.file(*(object_of("ConfigMap", name, labels={"a": "b"}) for name in "xy")))
        self.assertEqual(
            "configmap/x unchanged\nconfigmap/y pruned\n",
            self.ran(
                "apply", "-f", self.file(object_of("ConfigMap", "x", labels={"a": "b"})),
                "--prune", "-l", "a=b", "--prune-allowlist=core/v1/ConfigMap",
            ),
        )  # fmt: skip


class OtherTests(ApplyCase):
    """Refusals, output, commands below apply."""

    def test_other_compartment(self) -> None:
        """An object that was written out of another compartment is refused without ``--force``."""
        self.ran("apply", "-f", self.file(object_of("Deployment")))
        exported = self.live("deployment/web")
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
            exported["metadata"].pop(key, None)
        path = self.file(exported)
        self.ran("apply", "-f", path)
        self.config.write_text(self.config.read_text().replace("ALPHA", "BRAVO"))
        refused = self.svc("apply", "-f", path)
        self.assertEqual(1, refused.returncode)
        self.assertIn("Deployment.apps web has svc.internal/compartment: DE-S-ALPHA", refused.stderr)
        self.assertEqual(_MARKS, self.marks(self.live("deployment/web")))
        self.ran("apply", "-f", path, "--force")
        self.assertEqual("DE-S-BRAVO", self.marks(self.live("deployment/web")["spec"]["template"])[_LABEL])

    def test_kubectl_force(self) -> None:
        """``--kubectl-force`` makes an object anew that cannot be changed."""
        first = object_of("ConfigMap") | {"immutable": True, "data": {"a": "1"}}
        self.ran("apply", "-f", self.file(first))
        path = self.file(first | {"data": {"a": "2"}})
        self.assertEqual(1, self.svc("apply", "--force", "-f", path).returncode)
        self.ran("apply", "--kubectl-force", "-f", path)
        self.assertEqual({"a": "2"}, self.live("configmap/web")["data"])

    def test_output(self) -> None:
        """Dry runs, output formats, the field manager; and what kubectl refuses."""
        path = self.file(object_of("ConfigMap"))
        self.assertEqual("configmap/web created (dry run)\n", self.ran("apply", "-f", path, "--dry-run=client"))
        shown = json.loads(self.ran("apply", "-f", path, "--dry-run=server", "-o", "json"))
        self.assertEqual(_MARKS, self.marks(shown))
        self.assertEqual("configmap/web\n", self.ran("apply", "-f", path, "-oname", "--field-manager", "me"))
        self.assertIn("(flag_unknown)", self.svc("apply", "-f", path, "--no-such-flag").stderr)
        for words in (("-f", path, "word"), ("-f", path, "--dry-run=x")):
            direct = subprocess.run(
                [self.kubectl, "apply", *words],
                env={**self.environ, "KUBECONFIG": str(self.server.kubeconfig)},
                capture_output=True,
                text=True,
                check=False,
            )
            passed = self.svc("apply", *words)
            self.assertEqual(
                (direct.returncode, direct.stdout, direct.stderr), (passed.returncode, passed.stdout, passed.stderr)
            )
            self.assertEqual(1, passed.returncode)

    def test_last_applied(self) -> None:
        """The commands below apply; the compartment comes back after the file itself was recorded."""
        path = self.file(object_of("ConfigMap"))
        self.ran("apply", "-f", path)
        self.assertIn("DE-S-ALPHA", self.ran("apply", "view-last-applied", "configmap/web"))
        self.ran("apply", "set-last-applied", "-f", path)
        self.assertNotIn("DE-S-ALPHA", self.ran("apply", "view-last-applied", "configmap/web"))
        self.ran("apply", "-f", path)
        self.assertEqual(_MARKS, self.marks(self.live("configmap/web")))
        self.assertIn("DE-S-ALPHA", self.ran("apply", "view-last-applied", "configmap/web"))


class ReadTests(ApplyCase):
    """That objects are those which kubectl reads."""

    def both(self, *files: str, data: str = "") -> None:
        """Apply with kubectl in one namespace and with svc in another one: all but the compartment is the same."""
        command = [self.kubectl, "--kubeconfig", str(self.server.kubeconfig), "apply", "-n", self.second, *files]
        direct = subprocess.run(command, input=data, capture_output=True, text=True, check=False)
        passed = self.svc("apply", *files, data=data)
        self.assertEqual(
            (direct.returncode, direct.stdout), (passed.returncode, passed.stdout), (direct.stderr, passed.stderr)
        )
        found = [
            {each["metadata"]["name"]: self.content(each) for each in self.live("configmaps,services", where)["items"]}
            for where in (self.second, self.first)
        ]
        self.assertEqual(*found)
        self.assertGreater(len(found[0]), 1)

    def content(self, found: dict[str, Any]) -> dict[str, Any]:
        """What was applied of an object."""
        metadata = found["metadata"]
        own = {key: value for key, value in metadata.get("annotations", {}).items() if "/" not in key}
        labels = {key: value for key, value in metadata.get("labels", {}).items() if key != _LABEL}
        return {
            "labels": labels, "annotations": own, "ports": found.get("spec", {}).get("ports"),
            **{key: found.get(key) for key in ("data", "binaryData", "immutable")},
        }  # fmt: skip

    def test_yaml(self) -> None:
        """Booleans, numbers, anchors, merges, duplicate keys, documents and lists."""
        (self.home / "objects.yaml").write_text(_YAML)
        self.both("-f", str(self.home / "objects.yaml"))
        self.both("-f", "-", data=_YAML)

    def test_json(self) -> None:
        """Documents of JSON one behind the other, with duplicate keys."""
        one = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"1","a":"2"}}'
        self.both("-f", "-", data=f"{one}{one.replace('one', 'two')}")

    def test_folders(self) -> None:
        """A folder, with and without what is below it, and a kustomization."""
        folder = self.home / "folder"
        (folder / "below").mkdir(parents=True)
        for path, name in ((folder / "a.yaml", "a"), (folder / "b.json", "b"), (folder / "below" / "c.yml", "c")):
            path.write_text(json.dumps(object_of("ConfigMap", name)))
        (folder / "notes.txt").write_text("no object")
        self.both("-f", str(folder))
        self.both("-Rf", str(folder))
        kustomization = self.home / "kustomized"
        kustomization.mkdir()
        (kustomization / "kustomization.yaml").write_text("resources: [d.yaml]\nnameSuffix: -x\n")
        (kustomization / "d.yaml").write_text(json.dumps(object_of("ConfigMap", "d")))
        self.both("-k", str(kustomization))

    def test_address(self) -> None:
        """An address."""
        (self.home / "objects.yaml").write_text(_YAML)
        home = str(self.home)

        class Files(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=home)

            def log_message(self, *_arguments: Any) -> None:
                """Write nothing."""

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with contextlib.ExitStack() as stack:
                stack.callback(server.shutdown)
                self.both("-f", f"http://127.0.0.1:{server.server_port}/objects.yaml")

    def test_nothing_applied(self) -> None:
        """Where a part cannot be read, nothing is applied; the exit status is kubectl's."""
        for bad in ("a: [", "kind: ConfigMap\nmetadata: 3\n", ""):
            path = self.home / "bad.yaml"
            path.write_text(bad)
            ran = self.svc("apply", "-f", self.file(object_of("ConfigMap")), "-f", str(path), "-f", "/proc/nonexistent")
            self.assertEqual((1, ""), (ran.returncode, ran.stdout))
            self.assertIn("(objects_unreadable)\n     nothing was applied\n", ran.stderr)
        found = self.server.kubectl("get", "configmap", "-n", self.first, "-o", "name").split()
        self.assertNotIn("configmap/web", found)

    def test_secrets(self) -> None:
        """A Secret that comes on standard input is in no file of the home folder afterwards."""
        marker = "c2VjcmV0LW1hcmtlcg=="
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": marker}}
        self.ran("apply", "-f", "-", data=json.dumps(secret))
        self.assertEqual({"key": marker}, self.live("secret/s")["data"])
        files = [path for path in self.home.rglob("*") if path.is_file()]
        self.assertEqual([], [path for path in files if marker.encode() in path.read_bytes()])
