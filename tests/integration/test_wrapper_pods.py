"""``svc exec``, ``logs``, ``cp`` and ``port-forward`` with the real kubectl and a real API server, without nodes."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.integration.test_wrapper import WrapperCase

_LABEL: Final = "svc.internal/compartment"
_COMPARED: Final = 'pod "{}" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA'
#: What kubectl gets at when nothing has stopped it: no pod has a node here.
_AT_THE_KUBELET: Final = "does not have a host assigned"


class PodsCase(WrapperCase):
    """Pods of two compartments, and of none."""

    def setUp(self) -> None:
        """Make them."""
        super().setUp()
        for name, label in (("own", "DE-S-ALPHA"), ("other", "US-TS-BRAVO"), ("none", "")):
            self.make_pod(name, {_LABEL: label} if label else {})

    def make_pod(self, name: str, labels: dict[str, str], namespace: str = "") -> None:
        """Make a pod."""
        metadata: dict[str, Any] = {"name": name, "labels": {"app": "web", **labels}}
        container = {"name": "main", "image": "none.invalid/x"}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
        self.ran("create", "-f", "-", f"--namespace={namespace or self.first}", data=json.dumps(manifest))

    def make_service(self, name: str, selector: dict[str, str]) -> None:
        """Make a service."""
        spec = {"selector": selector, "ports": [{"port": 80}]}
        manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        self.ran("create", "-f", "-", data=json.dumps(manifest))


class ExecTests(PodsCase):
    """Commands in pods."""

    def test_compartments(self) -> None:
        """A pod of another compartment is refused, also as the pod of a service; others get as far as kubectl does."""
        self.make_service("bravo", {_LABEL: "US-TS-BRAVO"})
        self.make_service("web", {_LABEL: "DE-S-ALPHA"})
        for name in ("own", "none", "pods/own", "svc/web"):
            ran = self.svc("exec", name, "--", "true")
            self.assertEqual(1, ran.returncode)
            self.assertIn(_AT_THE_KUBELET, ran.stderr)
            self.assertNotIn("svc:", ran.stderr)
        for name in ("other", "pod/other", "service/bravo"):
            ran = self.svc("exec", name, "-c", "main", "--", "true")
            self.assertEqual(1, ran.returncode)
            self.assertIn(f"svc: {_COMPARED.format('other')} (pod_foreign)", ran.stderr)
            self.assertNotIn(_AT_THE_KUBELET, ran.stderr)

    def test_namespace(self) -> None:
        """The pod is looked for where the command says."""
        self.make_pod("own", {_LABEL: "US-TS-BRAVO"}, self.second)
        for words in (("-n", self.second), (f"-in{self.second}",)):
            self.assertIn(_COMPARED.format("own"), self.svc("exec", "own", *words, "--", "true").stderr)

    def test_as_kubectl(self) -> None:
        """What kubectl refuses it refuses in its own words."""
        for line, wanted in (
            ("exec gone -- true", 'Error from server (NotFound): pods "gone" not found'),
            ("exec own", "error: you must specify at least one command for the container"),
            ("exec -- true", "error: pod, type/name or --filename must be specified"),
            ("exec nonsense/x -- true", 'error: the server doesn\'t have a resource type "nonsense"'),
        ):
            ran = self.svc(*line.split())
            self.assertEqual((1, wanted), (ran.returncode, ran.stderr.splitlines()[0]))

    def test_force(self) -> None:
        """It needs the permission, which is asked for as the user that is named, and in all namespaces."""
        administrator = self.svc("exec", "other", "--force", "--", "true")
        self.assertIn(f"svc: {_COMPARED.format('other')}, and --force is given\n", administrator.stderr)
        self.assertIn(_AT_THE_KUBELET, administrator.stderr)
        user = f"user-{self.first}"
        usual = {"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get", "create"]}
        self.permit("ClusterRole", f"exec-{user}", user, **usual)
        override = {"apiGroups": ["svc.internal"], "resources": ["compartments"], "verbs": ["override"]}
        self.permit("Role", f"override-{user}", user, **override)
        refused = self.svc("exec", "other", "--force", f"--as={user}", "--", "true").stderr
        self.assertIn(f"{_COMPARED.format('other')}, and --force is not permitted (override_denied)", refused)
        self.permit("ClusterRole", f"override-{user}", user, **override)
        allowed = self.svc("exec", "other", "--force", f"--as={user}", "--", "true").stderr
        self.assertIn(f"{_COMPARED.format('other')}, and --force is given", allowed)
        self.assertIn(_AT_THE_KUBELET, allowed)

    def permit(self, kind: str, name: str, user: str, **rule: list[str]) -> None:
        """Give a user a role with a rule."""
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": [rule]}
        self.ran("create", "-f", "-", data=json.dumps(role))
        self.ran("create", f"{kind.lower()}binding", name, f"--{kind.lower()}={name}", f"--user={user}")
        self.addCleanup(self.server.kubectl, "delete", f"{kind},{kind}Binding", name, "-n", self.first)


class WarningTests(PodsCase):
    """Logs, ports and files of pods."""

    def test_warnings(self) -> None:
        """A warning for a pod of another compartment, none for others; kubectl runs."""
        self.make_service("bravo", {_LABEL: "US-TS-BRAVO"})
        for line, foreign in (
            ("logs other", True),
            ("logs own", False),
            ("logs svc/bravo", True),
            ("logs -l app=web --tail=1", True),
            ("port-forward other :80", True),
            ("port-forward none :80", False),
            (f"cp {self.first}/other:/x {self.home}/x", True),
            (f"cp own:/x {self.home}/x", False),
        ):
            ran = self.svc(*line.split())
            self.assertEqual(foreign, f"svc: {_COMPARED.format('other')}\n" in ran.stderr, f"{line}: {ran.stderr}")
            self.assertEqual(int(foreign), ran.stderr.count("svc: pod"), line)
