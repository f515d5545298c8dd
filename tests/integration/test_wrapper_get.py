"""``svc get`` with the real kubectl and a real API server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Final

from svc.compartments.argv import known_flags
from tests.integration.test_wrapper import WrapperCase
from tests.peers.waiting import end_process

_LABEL: Final = "svc.internal/compartment"
_OPTION: Final = re.compile(r"^ +(?:-([a-zA-Z]), )?--([a-z-]+)=(.*):$", re.MULTILINE)
#: They need no value, though their default is a word.
_OPTIONAL: Final = {"cascade", "dry-run", "validate"}


class ListingCase(WrapperCase):
    """Objects of two compartments and of none, which is what their names are."""

    def setUp(self) -> None:
        """Make a ConfigMap of each."""
        super().setUp()
        for name, label in (("own", "DE-S-ALPHA"), ("other", "US-TS-BRAVO"), ("third", "DE-S-CHARLIE"), ("none", "")):
            self.ran("create", "configmap", name)
            if label:
                self.ran("label", "configmap", name, f"{_LABEL}={label}")

    def names(self, *words: str) -> list[str]:
        """The names that a command shows."""
        shown = self.ran("get", *words, "-o", "name").split()
        return [each.partition("/")[2] for each in shown if not each.endswith("/kube-root-ca.crt")]


class ColumnTests(ListingCase):
    """The column."""

    def rows(self, *words: str) -> dict[str, str]:
        """The last column by the first one."""
        lines = [line.split() for line in self.ran("get", "configmap", *words).splitlines()]
        return {line[0]: line[-1] for line in lines}

    def test_tables(self) -> None:
        """Each table ends with the compartment."""
        wanted = {"own": "DE-S-ALPHA", "other": "US-TS-BRAVO", "third": "DE-S-CHARLIE", "NAME": "COMPARTMENT"}
        for words in ((), ("-o", "wide"), ("--server-print=false",), ("-o", "custom-columns=NAME:.metadata.name")):
            shown = self.rows(*words)
            self.assertEqual({**wanted, "none": shown["none"]}, {name: shown.get(name) for name in (*wanted, "none")})
            self.assertNotIn("DE-", shown["none"])
        self.assertEqual({"own": "DE-S-ALPHA"}, self.rows("own", "--no-headers"))
        self.assertEqual(
            {"own": "DE-S-ALPHA"}, self.rows("own", "--no-headers", "-o=custom-columns", "--template=N:.metadata.name")
        )
        labels = self.ran("get", "configmap", "own", "--show-labels").splitlines()
        self.assertEqual(["COMPARTMENT", "LABELS"], labels[0].split()[-2:])
        everywhere = self.ran("get", "-A", "configmaps,serviceaccounts", "-l", _LABEL).splitlines()
        self.assertEqual(["NAMESPACE", "NAME", "DATA", "AGE", "COMPARTMENT"], everywhere[0].split())

    def test_other_formats(self) -> None:
        """What is no table is what kubectl prints."""
        for words in (
            ("configmap", "own", "-o", "json"),
            ("configmap", "own", "-oyaml"),
            ("configmap", "-o", "jsonpath={.items[*].metadata.name}"),
            ("configmap", "own", "--template={{.kind}}"),
            ("--raw", f"/api/v1/namespaces/{self.first}/configmaps/own"),
        ):
            direct = self.plain("get", *words, "--context=prod", f"--namespace={self.first}").stdout
            self.assertEqual(direct, self.ran("get", *words))
            self.assertNotEqual("", direct)

    def test_watch(self) -> None:
        """A watch shows each line at once, with the column and only what the filter accepts."""
        process = subprocess.Popen(
            [sys.executable, "-m", "svc.cli.entry", "get", "cm", "-w", "--no-headers", "--current-compartment"],
            env=self.environ,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(end_process, process)
        assert process.stdout is not None
        self.assertEqual([b"own", b"DE-S-ALPHA"], process.stdout.readline().split()[::3])
        self.ran("label", "configmap", "none", f"{_LABEL}=DE-S-ALPHA")
        self.assertEqual([b"none", b"DE-S-ALPHA"], process.stdout.readline().split()[::3])


class FilterTests(ListingCase):
    """The filters."""

    def test_kinds(self) -> None:
        """Objects of a kind, with and without a selector of the user."""
        self.assertEqual(["own"], self.names("cm", "--current-compartment"))
        self.assertEqual(["own"], self.names("cm,sa", "--filter-compartment"))
        self.assertEqual(["other", "third"], self.names("cm", "--compartment=charlie", "--compartment", "US-TS-BRAVO"))
        others = self.names("cm", "--exclude-current-compartment")
        self.assertEqual(["none", "other", "third"], others)
        self.assertEqual(
            ["other"], self.names("cm", "-l", f"{_LABEL}!=DE-S-CHARLIE,{_LABEL}", "--exclude-current-compartment")
        )
        self.assertIn("own", self.names("cm", "-A", "--current-compartment"))

    def test_names(self) -> None:
        """Objects by name: those that the filter accepts, as kubectl shows one or several."""
        self.assertEqual(["own"], self.names("cm", "own", "--current-compartment"))
        self.assertEqual(
            ["own", "third"],
            self.names("cm", "own", "other", "third", "--current-compartment", "--compartment=CHARLIE"),
        )
        self.assertEqual(["other"], self.names("cm/own", "cm/other", "--exclude-current-compartment"))
        self.ran("create", "serviceaccount", "default")
        self.assertEqual(["default"], self.names("cm/own", "sa/default", "--exclude-current-compartment"))
        one = json.loads(self.ran("get", "cm", "own", "-o", "json", "--current-compartment"))
        self.assertEqual(("ConfigMap", "own"), (one["kind"], one["metadata"]["name"]))
        for words in (("cm", "other"), ("cm/other", "sa/default")):
            empty = self.svc("get", *words, "--current-compartment")
            self.assertEqual((0, ""), (empty.returncode, empty.stdout), empty.stderr)
            self.assertIn("No resources found", empty.stderr)
            listed = json.loads(self.ran("get", *words, "--current-compartment", "-o", "json"))
            self.assertEqual([], listed["items"])

    def test_failures(self) -> None:
        """What kubectl refuses without a filter it refuses with one, in the same words."""
        for words in (
            ("cm", "gone"),
            ("cm", "own", "gone"),
            ("cm", "own", "-l", "a=b"),
            ("cm", "own", "-A"),
            ("nonsense/x",),
        ):
            direct = self.svc("get", *words)
            filtered = self.svc("get", *words, "--current-compartment")
            self.assertEqual((direct.returncode, direct.stderr), (filtered.returncode, filtered.stderr))
            self.assertEqual((1, ""), (filtered.returncode, filtered.stdout))
        self.assertEqual(["own"], self.names("cm", "own", "gone", "--ignore-not-found", "--current-compartment"))
        for words in (("-f", "x"), ("-k", "x"), ("--raw", "/api"), ("cm", "own", "--new")):
            refused = self.svc("get", *words, "--current-compartment")
            self.assertEqual(1, refused.returncode)
            self.assertRegex(refused.stderr, r"\((filter_unusable|flag_unknown)\)")


class FlagTests(WrapperCase):
    """The flags that are known."""

    def test_flags(self) -> None:
        """They are those that kubectl has, each with its letter and with or without a value."""
        common = _OPTION.findall(self.plain("options").stdout)
        self.assertTrue(common)
        for verb in ("apply", "get", "exec", "logs", "cp", "port-forward", "delete"):
            names, valued, letters = known_flags(verb)
            found = common + _OPTION.findall(self.plain(verb, "--help").stdout)
            self.assertEqual({name for _letter, name, _default in found} | {"help"}, names)
            self.assertEqual({letter: name for letter, name, _default in found if letter} | {"h": "help"}, letters)
            bare = {name for _letter, name, default in found if default in ("true", "false")} | _OPTIONAL | {"help"}
            self.assertEqual(names - bare, valued)
