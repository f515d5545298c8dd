"""The policy of ``svc files admission`` on a real API server: label, annotations, and who moves what."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.compartment import Compartment
from tests.integration.kube_rig import SERVER
from tests.peers.apiserver import ApiServerFailed
from tests.peers.waiting import TOP, eventually

ALPHA, BRAVO = Compartment.parse("DE", "S", "AL-PHA"), Compartment.parse("DE", "S", "BRAVO")
FILE = TOP / "svc" / "data" / "admission" / "compartments.yaml"


class CompartmentPolicyTests(SynchronousTestCase):
    """One namespace, and somebody who may edit ConfigMaps in it."""

    def setUp(self) -> None:
        """Apply the policy, and wait until it is in force."""
        self.kubectl = SERVER.get().kubectl
        self.kubectl("apply", "-f", str(FILE))
        self.addCleanup(self.kubectl, "delete", "-f", str(FILE))
        self.namespace = f"t-{uuid4().hex[:8]}"
        self.kubectl("create", "namespace", self.namespace)
        for verb in ("role", "rolebinding"):
            given = ("--verb=*", "--resource=configmaps") if verb == "role" else ("--role=editor", "--user=ann")
            self.kubectl("create", verb, "editor", "-n", self.namespace, *given)
        eventually(lambda: self.refusal("probe", "X", {}), what="the policy")

    def write(self, name: str, label: str | None, annotations: dict[str, str], *options: str) -> None:
        """Make or change a ConfigMap."""
        labels = {} if label is None else {"svc.internal/compartment": label}
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace}
        metadata |= {"labels": labels, "annotations": annotations}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.kubectl("apply", "--server-side", "--force-conflicts", *options, "-f", "-", data=json.dumps(document))

    def refusal(self, *arguments: Any) -> str:
        """Why something is refused; nothing where it is not."""
        try:
            self.write(*arguments)
        except ApiServerFailed as error:
            return str(error)
        return ""

    def test_consistent(self) -> None:
        """What svc apply writes is accepted, the label alone is too, and so is what has none of it."""
        for name, label, given in (
            ("whole", ALPHA.label, ALPHA.annotations),
            ("label", ALPHA.label, {}),
            ("none", None, {"other": "x"}),
        ):
            self.assertEqual("", self.refusal(name, label, given))

    def test_inconsistent(self) -> None:
        """A label that is none, and annotations that it does not say, are refused with both values."""
        for label, given, said in (
            ("DE-S", {}, "expected a value such as DE-S-ALPHA"),
            (BRAVO.label, ALPHA.annotations, "mls.svc.internal/compartment is de:al-pha"),
            (ALPHA.label, {"mls.svc.internal/level": "de:ts"}, "mls.svc.internal/level is de:ts"),
            (None, ALPHA.annotations, "mls.svc.internal/level is de:s"),
        ):
            self.assertIn(said, self.refusal("wrong", label, given))

    def test_moved(self) -> None:
        """An object stays in its compartment, unless somebody may override."""
        self.write("moved", ALPHA.label, ALPHA.annotations)
        for label, given in ((BRAVO.label, BRAVO.annotations), (None, {})):
            said = self.refusal("moved", label, given, "--as=ann")
            self.assertIn("the object is in compartment DE-S-AL-PHA, and stays there", said)
        self.assertEqual("", self.refusal("moved", ALPHA.label, {**ALPHA.annotations, "note": "x"}, "--as=ann"))
        self.assertEqual("", self.refusal("moved", BRAVO.label, BRAVO.annotations))
