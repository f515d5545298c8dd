"""Objects with the compartment on them."""

from __future__ import annotations

import copy
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.compartment import Compartment
from svc.compartments.manifests import mark, other_compartments, qualified_kind

ALPHA: Final = Compartment("DE", "S", "ALPHA")
LABELS: Final = {"svc.internal/compartment": "DE-S-ALPHA"}
ANNOTATIONS: Final = {"mls.svc.internal/level": "de:s", "mls.svc.internal/compartment": "de:alpha"}
MARKED: Final = {"labels": LABELS, "annotations": ANNOTATIONS}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("metadata", "labels", "annotations", "spec", "template", "jobTemplate", "x")), inner
        )
    ),
    max_leaves=20,
)


def document(kind: str, version: str = "apps/v1", **fields: Any) -> dict[str, Any]:
    """An object."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, **fields}


class MarkTests(SynchronousTestCase):
    """Where label and annotations are set."""

    def marked(self, given: dict[str, Any], **templates: tuple[str, ...]) -> dict[str, Any]:
        """A copy of an object with the compartment, the same when that is set again; without its own metadata."""
        found = copy.deepcopy(given)
        places = {kind.replace("_", "."): places for kind, places in templates.items()}
        mark(found, ALPHA, places)
        again = copy.deepcopy(found)
        mark(again, ALPHA, places)
        self.assertEqual(found, again)
        self.assertEqual({"name": "web", **MARKED}, found.pop("metadata"))
        return found

    def test_object(self) -> None:
        """An object without a template has them in its metadata only."""
        self.assertEqual({"apiVersion": "v1", "kind": "Secret"}, self.marked(document("Secret", "v1")))
        self.assertEqual(
            {"apiVersion": "x.y/v1", "kind": "Deployment", "spec": {"template": {}}},
            self.marked(document("Deployment", "x.y/v1", spec={"template": {}})),
        )

    def test_templates(self) -> None:
        """Each kind that makes pods has them in its template too; selectors stay."""
        for kind, version in (
            ("Deployment", "apps/v1"),
            ("StatefulSet", "apps/v1"),
            ("DaemonSet", "apps/v1"),
            ("ReplicaSet", "apps/v1beta2"),
            ("ReplicationController", "v1"),
            ("Job", "batch/v1"),
        ):
            spec = {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}}}
            found = self.marked(document(kind, version, spec=spec))
            self.assertEqual({"matchLabels": {"app": "web"}}, found["spec"]["selector"])
            self.assertEqual(
                {"metadata": {"labels": {"app": "web", **LABELS}, "annotations": ANNOTATIONS}},
                found["spec"]["template"],
            )

    def test_other_places(self) -> None:
        """A CronJob has two templates, a PodTemplate has one at the top."""
        found = self.marked(document("CronJob", "batch/v1", spec={"jobTemplate": {"spec": {"template": {}}}}))
        self.assertEqual({"metadata": MARKED, "spec": {"template": {"metadata": MARKED}}}, found["spec"]["jobTemplate"])
        self.assertEqual({"metadata": MARKED}, self.marked(document("PodTemplate", "v1", template={}))["template"])

    def test_configured(self) -> None:
        """Places of other kinds: through lists, and through each key."""
        spec = {"groups": [{"template": {}}, {"template": {}}, {}], "roles": {"a": {"template": {}}, "b": 1}}
        found = self.marked(
            document("Train", "ml.org/v1", spec=spec),
            Train_ml_org=("spec.groups.template", "spec.roles.*.template", "spec.none.template"),
        )["spec"]
        self.assertEqual([{"metadata": MARKED}] * 2, [each["template"] for each in found["groups"][:2]])
        self.assertEqual({"a": {"template": {"metadata": MARKED}}, "b": 1}, found["roles"])
        self.assertEqual({}, found["groups"][2])

    def test_absent_metadata(self) -> None:
        """Metadata that is absent or null is made; what is no mapping stays for the API server to refuse."""
        for absent, expected in (
            ({}, MARKED),
            ({"metadata": None}, MARKED),
            ({"metadata": {"labels": None}}, MARKED),
            ({"metadata": {"labels": [1]}}, {"labels": [1], "annotations": ANNOTATIONS}),
            ({"metadata": "x"}, "x"),
        ):
            mark(absent, ALPHA, {})
            self.assertEqual(expected, absent["metadata"])

    def test_job_that_is_there(self) -> None:
        """The template of a Job gets what the one that is there has, and keeps what the file has."""
        live = {"metadata": {"labels": {"x": "y", **LABELS}, "annotations": {"mls.svc.internal/level": "us:u"}}}
        for template, present, expected in (
            ({}, {}, {}),
            ({}, {"metadata": {}}, {}),
            ({}, live, {"metadata": {"labels": LABELS, "annotations": {"mls.svc.internal/level": "us:u"}}}),
            ({"metadata": MARKED}, {}, {"metadata": MARKED}),
            ({"metadata": MARKED}, live, {"metadata": MARKED}),
        ):
            job = document("Job", "batch/v1", spec={"template": copy.deepcopy(template)})
            mark(job, ALPHA, {}, present)
            self.assertEqual(expected, job["spec"]["template"])
            self.assertEqual({"name": "web", **MARKED}, job["metadata"])

    @given(_JSON, st.sampled_from((("Deployment", "apps/v1"), ("CronJob", "batch/v1"), ("X", "x.org/v1"), (1, None))))
    def test_any_document(self, given: Any, kind: tuple[Any, Any]) -> None:
        """Any document is accepted, and one that is marked has no other compartment."""
        fields = given if isinstance(given, dict) else {"spec": given}
        found = {**fields, "kind": kind[0], "apiVersion": kind[1]}
        mark(found, ALPHA, {"X.x.org": ("spec.*.template",)})
        self.assertEqual([], other_compartments(found, ALPHA, {"X.x.org": ("spec.*.template",)}))


class OtherCompartmentTests(SynchronousTestCase):
    """What a document says about its compartment."""

    def test_none(self) -> None:
        """No word about it, and the same in any case, is no other compartment."""
        for metadata in ({}, {"labels": None}, MARKED, {"labels": {"svc.internal/compartment": "de-s-alpha"}}):
            self.assertEqual([], other_compartments(document("Pod", "v1") | {"metadata": metadata}, ALPHA, {}))

    def test_each_place(self) -> None:
        """Label and annotations count, in the metadata and in templates."""
        template = {"metadata": {"labels": {"svc.internal/compartment": "US-TS-BRAVO"}}}
        found = document("Deployment", spec={"template": template})
        found["metadata"]["annotations"] = {"mls.svc.internal/level": "de:ts", "mls.svc.internal/compartment": 1}
        self.assertEqual(
            [
                "Deployment.apps web has mls.svc.internal/level: de:ts",
                "Deployment.apps web has mls.svc.internal/compartment: 1",
                "Deployment.apps web has in spec.template svc.internal/compartment: US-TS-BRAVO",
            ],
            other_compartments(found, ALPHA, {}),
        )

    def test_kind(self) -> None:
        """A kind has its group behind it, and no version."""
        self.assertEqual("Job.batch", qualified_kind(document("Job", "batch/v1")))
        self.assertEqual("Pod", qualified_kind(document("Pod", "v1")))
        self.assertEqual("", qualified_kind({}))
