"""Which test modules a change selects."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from tests.runner import selection


class AffectedTests(SynchronousTestCase):
    """Modules that files can break."""

    def setUp(self) -> None:
        """All modules."""
        self.modules = selection.all_modules()

    def affected(self, *files: str) -> set[str]:
        """The modules that these files select."""
        return set(selection.affected(files, self.modules))

    def test_importers(self) -> None:
        """A module selects the tests that import it, directly or not, and no others."""
        found = self.affected("svc/broker/filters.py")
        self.assertLessEqual({"tests.broker.test_filters", "tests.broker.test_delivery"}, found)
        others = ("tests.proxy.test_", "tests.store.", "tests.cli.")
        self.assertFalse([each for each in found if each.startswith(others)])

    def test_programs(self) -> None:
        """A module of a daemon selects the integration tests that start the daemon."""
        self.assertIn("tests.integration.test_broker_clients", self.affected("svc/broker/filters.py"))
        self.assertIn("tests.integration.test_curl", self.affected("svc/proxy/listener.py"))
        self.assertNotIn("tests.integration.test_broker_clients", self.affected("svc/proxy/listener.py"))

    def test_peers(self) -> None:
        """A helper of the integration tests selects those that use it."""
        found = self.affected("tests/peers/nginx.py")
        self.assertIn("tests.integration.test_proxy_applications", found)
        self.assertNotIn("tests.integration.test_curl", found)

    def test_other_files(self) -> None:
        """A file that is no module selects its readers; one that nobody has assigned, or that is gone, selects all."""
        self.assertIn("tests.test_docs", self.affected("docs/cli.md"))
        self.assertNotIn("tests.wire.test_requests", self.affected("docs/cli.md"))
        self.assertEqual(set(self.modules), self.affected("constraints.txt"))
        self.assertEqual(set(self.modules), self.affected("svc/no_longer_there.py"))

    def test_whole_tree(self) -> None:
        """What reads the sources of the whole tree runs with every change."""
        self.assertIn("tests.telemetry.test_events", self.affected("svc/wire/fields.py"))


class OrderTests(SynchronousTestCase):
    """The order in which modules begin."""

    def test_longest_first(self) -> None:
        """The longest modules, which all exist, are first in their order; those of the integration tests are last."""
        modules = selection.all_modules()
        longest = list(selection._LONGEST)
        self.assertEqual(longest, modules[: len(longest)])
        integration = [each.startswith("tests.integration.") for each in modules[len(longest) :]]
        self.assertEqual(sorted(integration), integration)
        self.assertEqual(len(set(modules)), len(modules))


class ToolsTests(SynchronousTestCase):
    """Tools of ``bin/tools``, which are built while modules run that do not need them."""

    def test_nothing_built(self) -> None:
        """With an empty folder of tools each module that runs one comes behind all that run none, and it is built."""
        modules = selection.all_modules()
        ordered, missing = selection.plan(modules, lambda _tool: False)
        self.assertEqual({"kubernetes", "containerd", "coredns", "helm", "spire"}, set(missing))
        self.assertEqual(sorted(modules), sorted(ordered))
        late = [bool(selection.tools_of(each)) for each in ordered]
        self.assertEqual(sorted(late), late)
        for name, tools in (
            ("integration.test_wrapper_apply", {"kubernetes"}),
            ("integration.test_admission", {"kubernetes"}),
            ("integration.test_injection", {"kubernetes"}),
            ("integration.test_chart_hooks", {"kubernetes", "helm"}),
            ("integration.test_manager_entries", {"kubernetes", "spire"}),
            ("integration.test_cluster", {"kubernetes", "containerd", "coredns"}),
            ("chart.test_values", {"helm"}),
            ("e2e.test_chart", {"kubernetes", "containerd", "coredns", "helm", "spire"}),
            ("integration.test_curl", set()),
            ("integration.test_spire.AnyTests.test_any", {"spire"}),
        ):
            self.assertEqual(tools, selection.tools_of(f"tests.{name}"), name)

    def test_part_built(self) -> None:
        """Only modules whose tools are missing wait, and only these tools are built, in the order of the modules."""
        modules = ["tests.integration.test_spire", "tests.integration.test_crds", "tests.chart.test_values"]
        self.assertEqual((modules, []), selection.plan(modules, lambda _tool: True))
        spire, crds, values = modules
        self.assertEqual(([crds, spire, values], ["spire", "helm"]), selection.plan(modules, "kubernetes".__eq__))

    def test_each_use_is_declared(self) -> None:
        """A module that asks for a tool by its name has it in NEEDS_TOOLS, or imports a module that has."""
        asked = re.compile(r"""(?:folder_of|programs)\(["'](\w+)["']\)""")
        uses = 0
        for path in (selection.TOP / "tests").rglob("*.py"):
            module = ".".join(path.relative_to(selection.TOP).with_suffix("").parts)
            for found in asked.finditer(path.read_text()):
                uses += 1
                self.assertIn(found[1], selection.tools_of(module), module)
        self.assertGreater(uses, 5)


class FastTests(SynchronousTestCase):
    """What ``--fast`` leaves out."""

    def test_folders(self) -> None:
        """The folder of a module says whether it starts processes; folders with a longer name are others."""
        for name in ("integration.test_curl", "programs.kubectl.test_apply", "e2e.test_chart", "chart.test_values"):
            self.assertTrue(selection.starts_processes(f"tests.{name}"), name)
        for name in ("cli.test_curl", "programsother.test_x", "quickstart.test_options", "test_docs"):
            self.assertFalse(selection.starts_processes(f"tests.{name}"), name)

    def test_each_folder_has_modules(self) -> None:
        """Each folder that is left out exists."""
        for folder in selection._PROCESSES:
            self.assertTrue(any(each.startswith(folder) for each in selection.all_modules()), folder)


class NamedTests(SynchronousTestCase):
    """Names on the command line."""

    modules = ("tests.wire.test_fields", "tests.wire.test_limits", "tests.test_docs")

    def test_packages(self) -> None:
        """A package includes the modules below it."""
        self.assertEqual(
            ["tests.wire.test_fields", "tests.wire.test_limits"], selection.named(["tests.wire"], self.modules)
        )

    def test_short(self) -> None:
        """The name of the outermost package may be left out."""
        self.assertEqual(["tests.test_docs"], selection.named(["test_docs"], self.modules))

    def test_parts(self) -> None:
        """A class or a test stays as it is."""
        names = ["tests.test_docs.PageTests", "tests.wire.test_limits"]
        self.assertEqual(names, selection.named(names, self.modules))

    def test_unknown(self) -> None:
        """Another name is an error, not an empty run."""
        self.assertRaises(ValueError, selection.named, ["tests.wires"], self.modules)
