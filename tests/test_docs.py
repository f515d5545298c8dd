"""The documentation against the code: keys, examples, reasons and links that it names are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from twisted.trial.unittest import SynchronousTestCase

from svc.notary import errors, refusals
from svc.notary.errors import NotaryError
from svc.proxy.config import (
    ContainerSettings,
    LimitSettings,
    ListenerSettings,
    NotarySettings,
    PolicySettings,
    ProxySettings,
    TimeoutSettings,
    WorkloadSettings,
)
from svc.proxy.errors import ProxyError
from svc.settings import parse
from svc.workload.authority.config import AuthoritySettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
#: Sections of docs/configuration.md and the models whose keys they list.
SECTIONS: dict[str, tuple[type[BaseModel], ...]] = {
    "## Top level": (ProxySettings, PolicySettings),
    "## `notary`": (NotarySettings,),
    "## `workload`": (WorkloadSettings, ContainerSettings),
    "## `listeners[]`": (ListenerSettings,),
    "### `listeners[].limits`": (LimitSettings,),
    "### `listeners[].timeouts`": (TimeoutSettings,),
}
#: Reasons of proofs and keys, which no verification of a statement or receipt gives, and roots of trees.
ELSEWHERE = {
    "notary_refused",
    "statement_refused",
    "receipt_refused",
    "signers_unsuitable",
    "proof_mismatch",
    "caller_mismatch",
    "challenge_unknown",
    "wrong_trust_domain",
    "notary_rate",
}


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"^#{2,3} ", page.split(f"\n{title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def yaml_blocks(page: str) -> Iterator[str]:
    """The YAML examples of a page."""
    yield from re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor that forges make of a heading."""
    plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return plain.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page."""
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)}


class ConfigurationTests(SynchronousTestCase):
    """docs/configuration.md."""

    def test_every_key_has_its_row(self) -> None:
        """Each key of each model stands in its section, in code marks."""
        page = (DOCS / "configuration.md").read_text()
        for title, models in SECTIONS.items():
            text = section(page, title)
            for model in models:
                for key in model.model_fields:
                    self.assertRegex(text, rf"`(policy\.)?{key}(\[\])?[`.]", f"{title}: {key} is not described")

    def test_no_row_is_about_a_key_that_is_gone(self) -> None:
        """Each key in the first column of a table is one of the code."""
        page = (DOCS / "configuration.md").read_text()
        for title, models in SECTIONS.items():
            known = {key for model in models for key in model.model_fields}
            for row in re.findall(r"^\| (`.*?) \|", section(page, title), flags=re.MULTILINE):
                for key in re.findall(r"`([^`]+)`", row):
                    self.assertIn(key.removeprefix("policy.").removesuffix("[]"), known, title)

    def test_examples_are_valid(self) -> None:
        """Every whole example of a configuration passes the validator that the processes use."""
        proxies = authorities = 0
        for path in PAGES:
            for text in yaml_blocks(path.read_text()):
                if re.search(r"^listeners:", text, flags=re.MULTILINE):
                    parse(text, ProxySettings, str(path))
                    proxies += 1
                elif re.search(r"^(workloadApi|socket):", text, flags=re.MULTILINE):
                    parse(text, AuthoritySettings, str(path))
                    authorities += 1
        self.assertGreaterEqual(proxies, 2)
        self.assertGreaterEqual(authorities, 2)


class ReasonTests(SynchronousTestCase):
    """Every reason that a person can meet is explained."""

    def test_every_reason_of_a_verification_is_explained(self) -> None:
        """docs/receipts.md names what a statement, a receipt or evidence can be refused for."""
        page = (DOCS / "receipts.md").read_text()
        classes = [each for module in (errors, refusals) for each in vars(module).values() if isinstance(each, type)]
        words = {each.reason for each in classes if issubclass(each, NotaryError)} - ELSEWHERE
        self.assertGreater(len(words), 30)
        self.assertEqual({word for word in words if f"`{word}`" not in page and f"`{word}{{" not in page}, set())

    def test_every_answer_of_the_proxy_is_explained(self) -> None:
        """docs/operations.md or docs/receipts.md name each reason with which the proxy answers itself."""
        pages = (DOCS / "operations.md").read_text() + (DOCS / "receipts.md").read_text()
        own = {each.reason for each in ProxyError.__subclasses__()} - {"method_not_allowed", "not_found"}
        self.assertGreater(len(own), 10)
        self.assertEqual({word for word in own if f"`{word}`" not in pages}, set())


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
