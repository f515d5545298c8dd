"""As whom ``svc`` lets kubectl work, with the real kubectl and a real API server with its RBAC."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.integration.test_wrapper import WrapperCase
from tests.peers.waiting import eventually

_GROUPS: Final = ["svc:country:de", "svc:sensitivity:s", "svc:compartment:alpha", "system:authenticated"]
_RBAC: Final = "rbac.authorization.k8s.io"


class ImpersonationTests(WrapperCase):
    """A user who may do nothing, and a group that may read ConfigMaps."""

    def setUp(self) -> None:
        """Make both."""
        super().setUp()
        self.user = f"user-{self.first}"
        self.use(self.user)
        self.permit("reading", {"kind": "Group", "name": "svc:compartment:alpha"}, {
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]
        })  # fmt: skip

    def use(self, user: str, *groups: str) -> None:
        """Let the Kubernetes context be that of a user."""
        given = self.server.credentials(user, *groups)
        self.kubeconfig.write_bytes(given.read_bytes())
        self.plain("config", "rename-context", self.plain("config", "current-context").stdout.strip(), "prod")

    def permit(self, name: str, subject: dict[str, str], *rules: dict[str, Any]) -> None:
        """Give a user or a group a ClusterRole."""
        name = f"{name}-{self.first}"
        version = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": name}}
        role = {**version, "kind": "ClusterRole", "rules": rules}
        reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
        subjects = [{"apiGroup": _RBAC, **subject}]
        binding = {**version, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
        self.server.kubectl("apply", "-f", "-", data=f"{json.dumps(role)}\n{json.dumps(binding)}")
        self.addCleanup(self.server.kubectl, "delete", "ClusterRole,ClusterRoleBinding", name, "--ignore-not-found")

    def permit_impersonation(self, groups: list[str]) -> None:
        """Let the user work as itself in groups."""
        rules = [
            {"apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": ["impersonate"]}
            for resource, names in (("users", [self.user]), ("groups", groups))
        ]
        self.permit("impersonating", {"kind": "User", "name": self.user}, *rules)

    def choose(self, impersonate: str) -> None:
        """Set the key of the context, and forget what is kept."""
        text = self.config.read_text()
        self.config.write_text(text.replace("kubeContext:", f"impersonate: {impersonate}\n    kubeContext:"))
        (self.home / ".svc" / "impersonation.json").unlink(missing_ok=True)

    def shows(self, line: str) -> None:
        """Wait until svc identity says so: permissions count some time after they are given."""
        eventually(lambda: self.ran("identity").splitlines()[-1] == f"Impersonation: {line}", 60, line)

    def test_auto(self) -> None:
        """The groups count as soon as all of them are permitted, and svc identity says which one is not."""
        self.assertIn("(Forbidden)", self.svc("get", "cm").stderr)
        self.assertIn(f"User: {self.user}", self.ran("identity").splitlines())
        self.shows(
            ", ".join([f"{self.user} may not impersonate users {self.user}", *(f"groups {each}" for each in _GROUPS)])
        )
        self.permit_impersonation(_GROUPS[:-1])
        self.shows(f"{self.user} may not impersonate groups system:authenticated")
        self.assertIn("(Forbidden)", self.svc("get", "cm").stderr)
        self.permit_impersonation(_GROUPS)
        self.shows("yes")
        self.ran("get", "cm")
        info = json.loads(self.ran("auth", "whoami", "-o", "json"))["status"]["userInfo"]
        self.assertEqual((self.user, sorted(_GROUPS)), (info["username"], sorted(info["groups"])))
        self.assertIn("is forbidden", self.svc("create", "configmap", "x").stderr)

    def test_other_compartment(self) -> None:
        """The groups are those of the compartment in effect."""
        self.permit_impersonation([*_GROUPS, "svc:compartment:bravo"])
        self.shows("yes")
        self.ran("get", "cm")
        environ = {"SVC_COMPARTMENT": "BRAVO"}
        self.assertIn("(Forbidden)", self.svc("get", "cm", **environ).stderr)

    def test_never(self) -> None:
        """The user is who it is."""
        self.permit_impersonation(_GROUPS)
        self.choose("never")
        self.assertIn("(Forbidden)", self.svc("get", "cm").stderr)
        self.assertEqual("Impersonation: never", self.ran("identity").splitlines()[-1])

    def test_always(self) -> None:
        """What is not permitted is refused before kubectl runs, with one line and a hint."""
        self.choose("always")
        self.permit_impersonation(_GROUPS[1:])
        self.shows(f"{self.user} may not impersonate groups svc:country:de")
        refused = self.svc("get", "cm")
        self.assertEqual(
            f"svc: {self.user} may not impersonate groups svc:country:de, and the context de-s-alpha has "
            "impersonate: always (impersonation_denied)",
            refused.stderr.splitlines()[0],
        )
        self.assertEqual((1, 2, ""), (refused.returncode, len(refused.stderr.splitlines()), refused.stdout))
        self.permit_impersonation(_GROUPS)
        self.shows("yes")
        self.ran("get", "cm")

    def test_lost_groups(self) -> None:
        """Who would lose a group is not impersonated by auto, and is by always."""
        self.permit_impersonation(_GROUPS)
        self.use(self.user, "ops")
        self.shows("defaultUserGroups does not have ops, which would be lost")
        self.assertIn("(Forbidden)", self.svc("get", "cm").stderr)
        self.choose("always")
        self.shows("yes")
        self.ran("get", "cm")
