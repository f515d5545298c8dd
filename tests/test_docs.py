"""The documentation against the code: generated parts are fresh; keys, examples, reasons and links are there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import click
from twisted.trial.unittest import SynchronousTestCase

from docs.generator import reasons
from docs.generator.configuration import FILES
from docs.generator.contents import stale
from docs.generator.pages import COMMAND, PageBroken, filled
from svc import __version__
from svc.cli import broker, files, verify
from svc.cli.check import command as check
from svc.cli.commands import COMMANDS
from svc.cli.compartments import context as contexts
from svc.cli.curl import command as curl
from svc.cli.federation import command as federation
from svc.cli.globals import GLOBAL_FLAGS
from svc.cli.install import command as install
from svc.cli.license import command as licenses
from svc.cli.mqtt import command as mqtt
from svc.cli.policy import command as policy
from svc.cli.receipts import command as receipts
from svc.cli.status import command as status
from svc.envelope.errors import EnvelopeError
from svc.notary import errors
from svc.proxy.errors import ProxyError
from svc.settings import ConfigInvalid, parse

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
#: Reasons of proofs and keys, which no verification of a statement or receipt gives, and roots of trees.
ELSEWHERE = {
    "method_not_allowed",
    "notary_refused",
    "notary_unavailable",
    "statement_refused",
    "receipt_refused",
    "signers_unsuitable",
    "proof_mismatch",
    "caller_mismatch",
    "challenge_unknown",
    "wrong_trust_domain",
    "notary_rate",
}


def yaml_blocks(page: str) -> Iterator[str]:
    """The YAML examples of a page."""
    yield from re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def file_of(text: str) -> str:
    """Which configuration file a YAML example is a whole one of; empty where it is none."""
    if re.search(r"^listeners:", text, flags=re.MULTILINE):
        return "broker" if text.startswith("# broker.yaml\n") else "proxy"
    if re.search(r"^currentContext:", text, flags=re.MULTILINE):
        return "contexts"
    if text.startswith("# registrar.yaml\n"):
        return "registrar"
    if text.startswith("# manager.yaml\n"):
        return "manager"
    if re.search(r"^(csi|files):", text, flags=re.MULTILINE):
        return "agent"
    return "authority" if re.search(r"^(workloadApi|socket):", text, flags=re.MULTILINE) else ""


def slug(heading: str) -> str:
    """The anchor that forges make of a heading."""
    plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return plain.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page."""
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)}


class GeneratedTests(SynchronousTestCase):
    """What ``docs.generator`` writes: tables, schemas, diagrams."""

    def test_nothing_is_stale(self) -> None:
        """Every generated part and file is what the code says now."""
        found = stale()
        self.assertEqual(found, [], f"refresh the documentation and commit it: {COMMAND}")

    def test_a_part_without_a_generator_is_an_error(self) -> None:
        """A page cannot hold a part that is never refreshed, and no part can lose one of its comments."""
        for text, words in (
            ("<!-- generated: x -->\n<!-- end: x -->\n", "no generator"),
            ("<!-- generated: x -->\n", "no end"),
            ("<!-- end: x -->\n", "no beginning"),
            ("<!-- generated: x -->\n<!-- end: y -->\n", "no end"),
        ):
            with self.assertRaisesRegex(PageBroken, words):
                filled(text, {})

    def test_only_the_part_changes(self) -> None:
        """What people wrote around a generated part stays."""
        page = "before\n<!-- generated: x -->\nold\n<!-- end: x -->\nafter\n"
        self.assertEqual(filled(page, {"x": lambda: "new\n"}), page.replace("old", "new"))


class ConfigurationTests(SynchronousTestCase):
    """Configuration files in the documentation."""

    def test_examples_are_valid(self) -> None:
        """Every whole example of a configuration passes the validator that the processes use."""
        seen: Counter[str] = Counter()
        for path in PAGES:
            for shown in yaml_blocks(path.read_text()):
                # Users and groups that the pages tell to make.
                text = re.sub(r"\b((?:uid|owner|group|socketGroup): |allowUids: \[)[a-z][a-z-]*", r"\1root", shown)
                if name := file_of(text):
                    parse(text, FILES[name], str(path))
                    seen[name] += 1
        self.assertGreaterEqual(seen["proxy"], 2)
        self.assertGreaterEqual(seen["authority"], 2)
        self.assertGreaterEqual(seen["broker"], 1)

    def test_defects_of_the_example(self) -> None:
        """What docs/configuration.md shows for a file with defects is what the validator says of such a file."""
        page = (DOCS / "configuration.md").read_text()
        text = next(yaml_blocks(page))
        for right, wrong in (
            ("trustDomain: prod", "trustDomain: Prod"),
            ("retention: 90d", "retention: 90"),
            ("  default: allow", "  default: allow\n  files: [policy.yaml]"),
            ("name: bank\n    protocol: http", "name: bank\n    protocol: amqp"),
        ):
            self.assertEqual(1, text.count(right))
            text = text.replace(right, wrong)
        error = self.assertRaises(ConfigInvalid, parse, text, FILES["proxy"], "proxy.yaml")
        [shown] = re.findall(r"--check-config --offline\n((?:svc: .*\n)+)", page)
        self.assertEqual(shown.splitlines(), [f"svc: proxy.yaml: {each}" for each in error.problems])


class CommandLineTests(SynchronousTestCase):
    """docs/cli.md against the flags of the commands."""

    def test_every_flag_is_described(self) -> None:
        """The page names each flag of each command, and no flag that no command has."""
        page = (DOCS / "cli.md").read_text()
        flags = {
            name
            for command in (
                *broker.command.commands.values(),
                check.command,
                curl.command,
                files.command,
                install.command,
                *mqtt.command.commands["dead-letters"].commands.values(),  # type: ignore[attr-defined]
                status.command,
                verify.command,
                *(each for name in ("export", "import", "inspect") for each in _below(federation.command, name)),
                *(federation.command.commands[name] for name in ("connect", "info")),
                *licenses.command.commands.values(),
                *policy.command.commands.values(),
                *receipts.command.commands.values(),
            )
            for parameter in (*command.params, *GLOBAL_FLAGS)
            for name in parameter.opts
            if name.startswith("-")
        }
        named = set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z0-9-]*", page))
        others = {name for names in curl.CURL_FLAGS for name in names.split()} | {"--help", "--version"}
        self.assertGreater(len(flags), 30)
        self.assertEqual(set(), {name for name in flags if name not in named} - {"--output"})
        self.assertEqual(set(), {name for name in named if name.startswith("--")} - flags - others)

    def test_contexts(self) -> None:
        """The page of compartments names each command and flag of svc context, and no other."""
        page = (DOCS / "compartments.md").read_text()
        commands = contexts.command.commands
        self.assertEqual(set(commands), set(re.findall(r"^\| `svc context ([a-z]+)", page, flags=re.MULTILINE)))
        flags = {name for each in commands.values() for param in each.params for name in param.opts if name[0] == "-"}
        rows = "".join(re.findall(r"^\| `svc context .*", page, flags=re.MULTILINE))
        self.assertEqual(flags, set(re.findall(r"`(--[a-z-]+)`", rows)))


def _below(group: click.Group, name: str) -> list[click.Command]:
    found = group.commands[name]
    assert isinstance(found, click.Group)
    return list(found.commands.values())


class AbsentTests(SynchronousTestCase):
    """What the pages call not there yet."""

    def test_it_is_not_there(self) -> None:
        """No command that exists, nothing of MQTT, and no page but the README says it."""
        absent = {
            page.name: found
            for page in PAGES
            if (found := re.findall(r"not there yet\b\s*[^\n]*", page.read_text(), re.IGNORECASE))
        }
        self.assertEqual({"README.md"}, set(absent))
        self.assertNotIn("mqtt", str(absent).lower())
        self.assertEqual(set(), set(re.findall(r"`svc ([a-z]+)`", absent["README.md"][0])) & set(COMMANDS))


class VersionTests(SynchronousTestCase):
    """One version everywhere."""

    def test_images(self) -> None:
        """The examples for Kubernetes and the chart name images of this version."""
        found = {
            (path.name, tag)
            for path in (DOCS / "examples" / "kubernetes").iterdir()
            for tag in re.findall(r"image: svc\.internal/[a-z-]+:(\S+)", path.read_text())
        }
        self.assertGreater(len(found), 5)
        self.assertEqual({__version__}, {tag for _name, tag in found}, found)
        chart = (ROOT / "svc" / "data" / "chart" / "Chart.yaml").read_text()
        self.assertEqual([__version__] * 2, re.findall(r"(?m)^(?:version|appVersion): (\S+)$", chart))


class ReasonTests(SynchronousTestCase):
    """Every reason that a person can meet is explained."""

    def test_every_reason_of_a_verification_is_explained(self) -> None:
        """docs/receipts.md names what a statement, a receipt or evidence can be refused for."""
        page = (DOCS / "receipts.md").read_text()
        classes = [each for each in vars(errors).values() if isinstance(each, type)]
        words = {
            reason for each in classes if issubclass(each, EnvelopeError) for reason in (each.reason, *each.reasons)
        } - ELSEWHERE
        self.assertGreater(len(words), 30)
        self.assertEqual({word for word in words if f"`{word}`" not in page and f"`{word}{{" not in page}, set())

    def test_every_answer_of_the_proxy_is_explained(self) -> None:
        """docs/operations.md or docs/receipts.md name each reason with which the proxy answers itself."""
        pages = (DOCS / "operations.md").read_text() + (DOCS / "receipts.md").read_text()
        own = {reason for each in ProxyError.__subclasses__() for reason in (each.reason, *each.reasons)}
        own -= {ProxyError.reason, "method_not_allowed", "not_found"}
        self.assertGreater(len(own), 10)
        self.assertEqual({word for word in own if f"`{word}`" not in pages}, set())


class AllReasonsTests(SynchronousTestCase):
    """docs/reasons.md, which is generated."""

    def rows(self) -> dict[str, list[str]]:
        """The cells of each row by the reason."""
        lines = re.findall(
            r"^\| `([a-z0-9_]+)` \|(.*)\|$",
            (DOCS / "reasons.md").read_text().split("<!-- end: reasons -->")[0],
            flags=re.MULTILINE,
        )
        return {reason: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for reason, rest in lines}

    def test_every_error_has_its_row(self) -> None:
        """Each error is in the row of its reason, with its sentence and its codes; each row says what to do."""
        rows = self.rows()
        entries = reasons.entries()
        self.assertEqual(set(rows), set(entries))
        self.assertGreater(len(rows), 150)
        for reason, found in entries.items():
            _word, sentences, http, exits, advice = rows[reason]
            self.assertNotEqual(advice, "", reason)
            for error in found:
                self.assertIn(error.sentence.replace("|", "\\|"), sentences, reason)
                self.assertIn(str(error.http_status), http.split(", "), reason)
                self.assertIn(str(error.kind.exit_status), exits.split(", "), reason)

    def test_metric_words(self) -> None:
        """What a handshake can be refused for bears the word of the metric, and nothing does that it does not count."""
        words = {reason: cells[0] for reason, cells in self.rows().items()}
        self.assertEqual(words["expired"], "`svid_invalid`")
        self.assertEqual(words["policy_deny"], "`policy_deny`")
        self.assertEqual(words["store_corrupt"], "")
        self.assertLessEqual(set(words.values()), {"", "`svid_invalid`", "`policy_deny`"})

    def test_advice_is_asked_for(self) -> None:
        """A new error without a hint, and advice on an error that is gone, are mistakes that the generator names."""
        for name, advice in (("upstream_closed", None), ("no_such_reason", "x")):
            given = {**reasons.ADVICE, name: advice}
            with self.assertRaisesRegex(PageBroken, name):
                reasons.reasons({key: value for key, value in given.items() if value is not None})


class ArchitectureTests(SynchronousTestCase):
    """docs/architecture.md against the contract that import-linter enforces."""

    def test_every_package_has_its_row(self) -> None:
        """The packages of each layer are in the table, with the number of their line, and no others do."""
        setup = ConfigParser()
        setup.read(ROOT / "setup.cfg")
        layers = setup["importlinter:contract:layers"]["layers"].strip().split("\n")
        wanted = {
            (f"svc.{name.strip()}", str(len(layers) - 1 - number))
            for number, line in enumerate(layers)
            for name in line.split("|")
        }
        found = {
            (name, number)
            for number, names in re.findall(
                r"^\| (\d+) \| (.*?) \|", (DOCS / "architecture.md").read_text(), re.MULTILINE
            )
            for name in re.findall(r"`(svc\.\w+)`", names)
        }
        self.assertEqual(found, wanted)


class SecurityTests(SynchronousTestCase):
    """docs/security.md names the tests of its claims."""

    def test_every_test_that_is_named_is_there(self) -> None:
        """Each name leads to a module, a class or a method."""
        names = re.findall(
            r"`(tests(?:\.\w+)+)`", (DOCS / "security.md").read_text() + (DOCS / "architecture.md").read_text()
        )
        self.assertGreater(len(names), 20)
        for name in names:
            self.assertTrue(self.there(name), name)

    def there(self, name: str) -> bool:
        """Look for a test without running anything of it."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            path = ROOT.joinpath(*parts[:count])
            source = path.with_suffix(".py")
            if path.is_dir() and count == len(parts):
                return True
            if source.exists():
                text = source.read_text()
                return all(
                    re.search(rf"^\s*(?:async )?(?:class|def) {part}\b", text, re.MULTILINE) for part in parts[count:]
                )
        return False


class LinkTests(SynchronousTestCase):
    """Links inside the documentation."""

    def test_links_lead_somewhere(self) -> None:
        """Each relative link names a file that exists, and a heading of it where it names one."""
        for path in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
                if target.startswith(("http://", "https://")):
                    continue
                name, _, anchor = target.partition("#")
                there = (path.parent / name).resolve() if name else path
                self.assertTrue(there.exists(), f"{path.name}: {target}")
                if anchor:
                    self.assertIn(anchor, anchors(there), f"{path.name}: {target}")

    def test_every_decision_is_listed(self) -> None:
        """The index of decisions names every page, and each begins with its number."""
        index = (DOCS / "decisions" / "README.md").read_text()
        for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
            self.assertIn(f"({path.name})", index)
            self.assertTrue(path.read_text().startswith(f"# {path.name[:4]} "), path.name)
