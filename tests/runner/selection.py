"""Which test modules run: all, those that are named, or those that a change can break."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import grimp

TOP = Path(__file__).resolve().parents[2]
#: Begun first and in this order, so that none of them runs alone at the end. Those that wait for lifetimes and timeouts
#: to end alternate with those that compute: four processes of the former at once would leave the processors idle.
_LONGEST = (
    "tests.integration.test_spire",
    "tests.programs.test_fuzzing",
    "tests.integration.test_proxy_rotation",
    "tests.integration.test_examples",
    "tests.integration.test_workload_source",
    "tests.integration.test_authority",
    "tests.integration.test_broker_hanging_disk",
    "tests.integration.test_mqtt_soak",
    "tests.integration.test_proxy_clock",
)
#: Packages that a module reaches by running a program, which no import shows.
_PROGRAMS = {
    "tests.peers.authority": ("svc.authority",),
    "tests.peers.broker": ("svc.broker",),
    "tests.peers.proxy": ("svc.proxy",),
    "tests.peers.programs": ("svc.cli",),
    "tests.programs.test_fuzzing": ("tests.fuzzing",),
    "tests.programs.test_commands": ("svc.cli",),
    "tests.programs.test_tap": ("svc.proxy", "svc.authority", "svc.broker"),
    "tests.integration.test_examples": ("svc.embedding", "svc.cli"),
    "tests.cli.test_transcripts": ("svc.cli",),
    "tests.integration.test_bench": ("benchmarks",),
    "tests.integration.test_quickstart": ("svc.quickstart", "svc.proxy", "svc.authority", "svc.cli"),
}
#: They read the sources of the whole tree, or import any of it.
_ALWAYS = (
    "tests.test_api",
    "tests.test_config_schemas",
    "tests.test_decisions",
    "tests.test_docs",
    "tests.test_errors",
    "tests.programs.test_files",
    "tests.programs.test_imports",
    "tests.telemetry.test_events",
)
#: The tests of the command line.
_CLI = ("tests.cli.*", "tests.programs.*")
#: Which tests read which files that are not modules; a file that matches no line affects every test.
_FILES = {
    "docs/*": ("tests.test_*", "tests.broker.test_documentation", "tests.integration.test_examples"),
    "svc/data/alerts/*": ("tests.integration.test_prometheus", "tests.chart.test_templates", "tests.test_docs"),
    "svc/data/chart/*": (
        *("tests.chart.*", "tests.integration.test_chart_hooks", "tests.e2e*"),
        *("tests.integration.test_prometheus_discovery", "tests.test_docs", *_CLI),
    ),
    "svc/data/crds/*": ("tests.kube.*", "tests.integration.test_crds", *_CLI),
    "svc/data/*": ("tests.test_*", *_CLI, "tests.telemetry.*"),
    "*.md": ("tests.test_*",),
    "tests/vectors/license/*": ("tests.license.*", *_CLI),
    "tests/vectors/*": ("tests.notary.*", "tests.identity.*", *_CLI, "tests.testing.*"),
    "tests/cli/transcripts/*": _CLI,
    "bin/tools": ("tests.integration.test_tools", "tests.integration.test_spire*", "tests.integration.test_cluster"),
    "bin/cluster": ("tests.integration.test_cluster", "tests.e2e*"),
    "clusters/kubernetes_module/*": ("tests.integration.test_tools", "tests.integration.test_cluster"),
    "images/*": ("tests.integration.test_images*", "tests.integration.test_cluster", "tests.e2e*"),
    "bin/image": ("tests.integration.test_images*", "tests.e2e*"),
    "licensing/*": ("tests.license.test_signing", "tests.programs.test_commands"),
    "bin/license-sign": ("tests.programs.test_commands",),
    "bin/quickstart": ("tests.integration.test_quickstart",),
    "bin/bench": ("tests.integration.test_bench",),
    "bin/check": (),
    "benchmarks/*": ("tests.integration.test_bench",),
    ".ci/*": (),
    ".gitignore": (),
    "ruff.toml": (),
}


def all_modules() -> list[str]:
    """Name every test module: the longest ones, units, then those of ``tests.integration``."""
    names = [_module(path.relative_to(TOP)) for path in sorted((TOP / "tests").rglob("test_*.py"))]
    first = {name: number for number, name in enumerate(_LONGEST)}
    return sorted(names, key=lambda name: (first.get(name, len(first)), name.startswith("tests.integration.")))


@cache
def tools_of(name: str) -> frozenset[str]:
    """
    The tools of ``bin/tools`` that a module, or what is named in it, needs: ``NEEDS_TOOLS`` of this module and of all
    that it imports of ``tests``, directly or not.
    """
    graph = _tests_graph()
    while name not in graph.modules:
        name = name.rpartition(".")[0]
    return frozenset().union(*map(_declared_tools, {name, *graph.find_upstream_modules(name)}))


def plan(modules: Sequence[str], built: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """
    Order modules so that those whose tools have to be built come last, and name these tools.

    Args:
        modules: in the order in which they run otherwise; also names in a module, of a class or a test.
        built: whether a tool is there.

    Returns:
        The modules, and the tools to build, those of the first modules first.
    """
    needed = dict.fromkeys(tool for each in modules for tool in sorted(tools_of(each)))
    missing = [each for each in needed if not built(each)]
    return sorted(modules, key=lambda each: not tools_of(each).isdisjoint(missing)), missing


#: How a module of the tests says which tools of ``bin/tools`` it runs.
_NEEDS_TOOLS = re.compile(r"(?m)^NEEDS_TOOLS = (\(.*\))$")
#: The folders of tests that start processes, containers or a browser.
_PROCESSES = ("tests.integration.", "tests.programs.", "tests.e2e.", "tests.chart.")


def starts_processes(name: str) -> bool:
    """Whether a module, by its folder, may start a process."""
    return name.startswith(_PROCESSES)


def named(names: Sequence[str], modules: Sequence[str]) -> list[str]:
    """
    Choose the modules below each name, of which ``tests.`` may be left out; a name in a module, of a class or a test,
    stays as it is.

    Raises:
        ValueError: there is no such module.
    """
    chosen: list[str] = []
    for given in names:
        name = given if given.split(".")[0] == "tests" else f"tests.{given}"
        below = [each for each in modules if each == name or each.startswith(f"{name}.")]
        if not below and not any(name.startswith(f"{each}.") for each in modules):
            raise ValueError(f"there is no test module {given}; --list prints their names")
        chosen += below or [name]
    return chosen


def changed(since: str, modules: Sequence[str]) -> list[str]:
    """
    Choose the modules that can be broken by what differs between a commit and the working tree.

    Raises:
        ValueError: there is no such commit, or no repository.
    """
    files = _git("diff", "--name-only", since) + _git("ls-files", "--others", "--exclude-standard")
    return affected(files, modules) if files else []


def affected(files: Iterable[str], modules: Sequence[str]) -> list[str]:
    """
    Choose the modules that files can break.

    Args:
        files: paths from the top of the checkout.
        modules: all test modules.

    Returns:
        Those that import one of the files, directly or not, that run a program that does, or that read it.
    """
    graph = _import_graph()
    sources = {_module(Path(each)) for each in files if each.endswith(".py")} & graph.modules
    patterns: list[str] = list(_ALWAYS)
    for each in files:
        if _module(Path(each)) not in sources:
            matching = [found for pattern, found in _FILES.items() if fnmatch(each, pattern)]
            patterns += matching[0] if matching else ["*"]
    reached = sources.union(*(graph.find_downstream_modules(each) for each in sources))
    return [each for each in modules if each in reached or any(fnmatch(each, pattern) for pattern in patterns)]


@cache
def _import_graph() -> grimp.ImportGraph:
    graph = grimp.build_graph("svc", "tests", "docs", "benchmarks", "clusters", cache_dir=None)
    for runner, packages in _PROGRAMS.items():
        for package in packages:
            for module in graph.find_descendants(package):
                graph.add_import(importer=runner, imported=module)
    return graph


@cache
def _tests_graph() -> grimp.ImportGraph:
    # What is imported for annotations alone does not run.
    return grimp.build_graph("tests", exclude_type_checking_imports=True, cache_dir=None)


@cache
def _declared_tools(module: str) -> frozenset[str]:
    """Read ``NEEDS_TOOLS`` of a module without importing it."""
    path = TOP.joinpath(*module.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    found = _NEEDS_TOOLS.search(source)
    return frozenset(ast.literal_eval(found[1]) if found else ())


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _git(*arguments: str) -> list[str]:
    ran = subprocess.run(["git", *arguments], cwd=TOP, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ValueError(f"git {' '.join(arguments)}: {ran.stderr.splitlines()[0]}")
    return ran.stdout.splitlines()
