"""Tests of :mod:`svc.notary.facts`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.notary.facts import (
    FACT_FILES,
    MAX_CONTAINERS,
    MAX_TRUNCATED,
    MAX_VALUE_CHARACTERS,
    Container,
    FactsInvalid,
    WorkloadFacts,
    parse_downward_map,
)


def go_quote(text: str) -> str:
    """Quote as Go's strconv.Quote does: escapes for what is not printable, UTF-8 for the rest."""
    letters = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v", "\\": "\\", '"': '"'}
    out = []
    for character in text:
        code = ord(character)
        if character in letters:
            out.append("\\" + letters[character])
        elif character.isprintable():
            out.append(character)
        elif code < 0x80:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


class ExplicitTests(SynchronousTestCase):
    """Facts from the configuration."""

    def test_absent(self) -> None:
        """What is absent is null and named; the pod name falls back to the host name; containers are empty."""
        facts = WorkloadFacts.explicit(host_name="host-1")
        expected = {
            "namespace": None,
            "serviceAccount": None,
            "podName": "host-1",
            "podUID": None,
            "node": None,
            "containers": [],
            "labels": None,
            "annotations": None,
        }
        self.assertEqual(expected, facts.claims())
        self.assertEqual(list(expected), list(facts.claims()))
        self.assertEqual(FACT_FILES, facts.truncated)

    def test_allow_list(self) -> None:
        """Only compartment and level are published by default; of others the names are listed, not the values."""
        facts = WorkloadFacts.explicit(
            labels={naming.LABEL_COMPARTMENT: "DE-S-ALPHA", "team": "secret team"},
            annotations={naming.ANNOTATION_LEVEL: "de:s", "note": "secret note"},
        )
        self.assertEqual({naming.LABEL_COMPARTMENT: "DE-S-ALPHA"}, facts.labels)
        self.assertEqual({naming.ANNOTATION_LEVEL: "de:s"}, facts.annotations)
        self.assertEqual(("labels/team", "annotations/note"), facts.truncated[-2:])
        self.assertNotIn("secret", str(facts.claims()))

    def test_own_allow_list(self) -> None:
        """Another allow-list replaces the default."""
        facts = WorkloadFacts.explicit(labels={"team": "a", naming.LABEL_COMPARTMENT: "b"}, allow=["team"])
        self.assertEqual({"team": "a"}, facts.labels)

    def test_truncated_is_bounded(self) -> None:
        """The list of withheld labels is limited; the number of the rest is given."""
        for count, cut in ((MAX_TRUNCATED - 7, False), (MAX_TRUNCATED - 6, True)):
            facts = WorkloadFacts.explicit(labels={f"l{number:04}": "" for number in range(count)})
            self.assertEqual(cut, facts.truncated[-1].startswith("+"))
            self.assertEqual(MAX_TRUNCATED, len(facts.truncated))

    def test_limits(self) -> None:
        """A value at the limit is taken, one beyond it is refused with its name."""
        WorkloadFacts.explicit(namespace="n" * MAX_VALUE_CHARACTERS)
        error = self.assertRaises(FactsInvalid, WorkloadFacts.explicit, namespace="n" * (MAX_VALUE_CHARACTERS + 1))
        self.assertEqual("namespace", error.name)
        one = Container("a", "b")
        self.assertEqual(MAX_CONTAINERS, len(WorkloadFacts.explicit(containers=[one] * MAX_CONTAINERS).containers))
        self.assertRaises(FactsInvalid, WorkloadFacts.explicit, containers=[one] * (MAX_CONTAINERS + 1))

    def test_lone_surrogate(self) -> None:
        """What cannot be written as UTF-8 is refused before it is signed."""
        self.assertRaises(FactsInvalid, WorkloadFacts.explicit, node="\ud800")

    def test_container(self) -> None:
        """A container needs a name, an image and, where given, a digest that is one."""
        self.assertEqual(
            {"name": "a", "image": "b", "imageDigest": None, "init": True}, Container("a", "b", init=True).claim()
        )
        for name, image, digest in (("", "b", None), ("a", "", None), ("a", "b", "latest"), ("a", "b", "sha256:zz")):
            self.assertRaises(FactsInvalid, Container, name, image, digest)

    def test_equal_when_nothing_changed(self) -> None:
        """Facts of the same inputs are equal, so that no new statement is signed."""
        self.assertEqual(WorkloadFacts.explicit(labels={"a": "b"}), WorkloadFacts.explicit(labels={"a": "b"}))
        self.assertNotEqual(WorkloadFacts.explicit(node="a"), WorkloadFacts.explicit(node="b"))


class FromFilesTests(SynchronousTestCase):
    """Facts from a downward-API folder."""

    def test_all_files(self) -> None:
        """Each file gives its fact; unknown files are ignored."""
        facts = WorkloadFacts.from_files(
            {
                "namespace": "pay\n",
                "serviceAccount": "api",
                "podName": "api-7c",
                "podUID": "0a1b",
                "node": "n1",
                "containers": '[{"name":"api","image":"reg/api:1","imageDigest":"sha256:' + "0" * 64 + '"}]',
                "labels": f'app="api"\n{naming.LABEL_COMPARTMENT}="DE-S-ALPHA"',
                "annotations": f'{naming.ANNOTATION_LEVEL}="de:s"\nnote="a\\"b\\n"\n',
                "..data": "ignored",
            }
        )
        self.assertEqual(("pay", "api", "n1"), (facts.namespace, facts.service_account, facts.node))
        self.assertEqual((Container("api", "reg/api:1", "sha256:" + "0" * 64),), facts.containers)
        self.assertEqual({naming.LABEL_COMPARTMENT: "DE-S-ALPHA"}, facts.labels)
        self.assertEqual(("labels/app", "annotations/note"), facts.truncated)

    def test_empty_file_is_absent(self) -> None:
        """A file without text is an absent fact; an empty file of labels means that there are none."""
        facts = WorkloadFacts.from_files({"namespace": "\n", "labels": ""}, host_name="h")
        self.assertIsNone(facts.namespace)
        self.assertEqual({}, facts.labels)
        self.assertIn("namespace", facts.truncated)
        self.assertNotIn("labels", facts.truncated)

    def test_bad_containers(self) -> None:
        """The file of containers is strict JSON of the documented shape."""
        for text in (
            "", "{}", "[1]", '[{"name":"a"}]', '[{"name":"a","image":1}]', '[{"name":"a","image":"b","init":1}]',
            '[{"name":"a","name":"a","image":"b"}]', '[{"name":"a","image":"b","imageDigest":5}]',
        ):  # fmt: skip
            error = self.assertRaises(FactsInvalid, WorkloadFacts.from_files, {"containers": text})
            self.assertEqual("containers", error.name)

    @given(st.dictionaries(st.sampled_from(FACT_FILES), st.text(max_size=60)))
    def test_any_text(self, files: dict[str, str]) -> None:
        """Any texts give facts or an error that names the file."""
        try:
            facts = WorkloadFacts.from_files(files, host_name="h")
        except FactsInvalid as error:
            self.assertIn(error.name.split("/")[0].split(".")[0], FACT_FILES)
        else:
            self.assertIsInstance(facts.claims(), dict)


class DownwardMapTests(SynchronousTestCase):
    """The format of labels and annotations of the Kubernetes downward API."""

    def test_escapes(self) -> None:
        """All escapes of Go are understood."""
        text = 'a="x\\n\\t\\"\\\\\\x01\\u00e9\\U0001f600é\\a\\b\\f\\r\\v"'
        self.assertEqual({"a": 'x\n\t"\\\x01é\U0001f600é\a\b\f\r\v'}, parse_downward_map(text, name="labels"))

    def test_octets_that_were_not_text(self) -> None:
        """An escaped octet above 7f was not UTF-8 and becomes the replacement character."""
        self.assertEqual({"a": "\ufffd"}, parse_downward_map('a="\\xff"', name="labels"))

    def test_refused(self) -> None:
        """Lines of another form are refused with their number."""
        for line in (
            "a", "=b", 'a="b', "a=b", 'a="b"c', 'a="\\q"', 'a="\\ud800"', 'a="\\U00110000"', '-a="b"', 'a b="c"',
            'a="b\\"', 'x="1"\nx="2"',
        ):  # fmt: skip
            error = self.assertRaises(FactsInvalid, parse_downward_map, line, name="labels")
            self.assertIn("line", error.defect)

    @given(st.dictionaries(st.from_regex(r"[a-z]([a-z./-]{0,10}[a-z])?", fullmatch=True), st.text(max_size=20)))
    def test_round_trip(self, values: dict[str, str]) -> None:
        """What Kubernetes writes is read back."""
        kept = {name: "".join(c for c in value if not 0xD800 <= ord(c) <= 0xDFFF) for name, value in values.items()}
        text = "\n".join(f"{name}={go_quote(value)}" for name, value in sorted(kept.items()))
        self.assertEqual(kept, parse_downward_map(text, name="labels"))

    @given(st.text(max_size=80))
    def test_any_text(self, text: str) -> None:
        """Any text gives a map or a typed error."""
        try:
            found = parse_downward_map(text, name="annotations")
        except FactsInvalid as error:
            self.assertEqual("annotations", error.name)
        else:
            self.assertTrue(all(found))
