"""What ``svc check`` prints: transcripts of each form, with facts of a cluster; and which facts it reads."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.checks.facts import ClusterFacts
from svc.checks.model import Level, Results, make_checks
from svc.checks.preflight import CHECKS, needed_rights
from svc.cli.check.rendering import MOST_SHOWN, as_document, as_text
from svc.cli.check.run import print_results
from svc.cli.cluster import Choice, cluster_named
from svc.cli.output import Console
from svc.kube.errors import KubernetesError
from svc.kube.kinds import NODES
from tests.checks.test_preflight import driver, node, objects, server, version, well
from tests.cli.test_transcripts import runs

_TRANSCRIPT: Final = Path(__file__).parent / "transcripts" / "check-output.txt"
TARGET: Final = {"kind": "cluster", "server": "https://a:6443", "context": "prod", "pre": True}


class Terminal(io.BytesIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def printed(results: Results, output: str, stream: io.BytesIO, environ: Mapping[str, str]) -> str:
    """Print results as the command does; returns a transcript."""
    console = Console(stream, io.BytesIO(), environ)
    status = print_results(results, "cluster https://a:6443 (context prod)", dict(TARGET), output, console)
    text = stream.getvalue().decode().replace("\x1b", "ESC")
    return f"exit: {status}\nstdout:\n" + "".join(f"  {line}".rstrip() + "\n" for line in text.splitlines())


def some_wrong() -> ClusterFacts:
    """Facts with a warning and with failures."""

    facts = driver(name="svc", namespace="svc-system")(version("v1.32.1")(well()))
    return objects(NODES, node(), node("two\x1b[2J", operatingSystem="windows"))(facts)


def unreachable() -> ClusterFacts:
    """Facts of a cluster that does not answer."""
    return replace(well(), server=KubernetesError("kubernetes_unreachable", server="https://a:6443", detail="refused"))


FORMS: Final = {
    *(("wrong", form) for form in ("file", "terminal", "plain-terminal", "json")),
    *(("well", "file"), ("unreachable", "file"), ("unreachable", "json")),
}
FACTS: Final = {"well": well, "wrong": some_wrong, "unreachable": unreachable}


class TranscriptTests(SynchronousTestCase):
    """The recorded outputs."""

    def test_transcripts(self) -> None:
        """Words without a terminal; signs and colours on one; one document."""
        recorded = runs(_TRANSCRIPT.read_text())
        self.assertEqual(
            FORMS,
            {(environ["FACTS"], environ["FORM"]) for environ, _command, _expected in recorded},
        )
        for environ, _command, expected in recorded:
            self.assertEqual(transcript(environ).strip(), expected.strip(), str(environ))


def transcript(environ: Mapping[str, str]) -> str:
    """Make the transcript of a form with facts."""
    form = environ["FORM"]
    stream = Terminal() if form.endswith("terminal") else io.BytesIO()
    variables = {"NO_COLOR": "1"} if form == "plain-terminal" else {}
    results = make_checks(CHECKS, FACTS[environ["FACTS"]]())
    return printed(results, "json" if form == "json" else "text", stream, variables)


class RenderingTests(SynchronousTestCase):
    """Bounds, and what may be in texts."""

    def text(self, facts: ClusterFacts) -> list[str]:
        """Return the lines."""
        return as_text(make_checks(CHECKS, facts), "cluster", terminal=False, colour=False).splitlines()

    def test_bound(self) -> None:
        """Of one check a number of findings is shown, the document has all; one more says so."""
        for count, more in ((MOST_SHOWN, False), (MOST_SHOWN + 1, True)):
            facts = replace(well(), missing_rights=needed_rights()[:count])
            lines = self.text(facts)
            self.assertEqual(MOST_SHOWN, sum("(missing)" in line for line in lines))
            self.assertEqual(more, "     and 1 more, which -o json has" in lines)
            document = as_document(make_checks(CHECKS, facts), {})
            rights = next(each for each in document["checks"] if each["name"] == "rights")
            self.assertEqual(count, len(rights["findings"]))

    def test_failures_first(self) -> None:
        """No failure is hidden behind warnings."""

        windows = [node(f"w{number}", operatingSystem="windows") for number in range(MOST_SHOWN)]
        lines = self.text(objects(NODES, *windows, node(), node("old", kubeletVersion="v1.20.0"))(well()))
        first = next(number for number, line in enumerate(lines) if " nodes: " in line)
        self.assertIn("(kubelet)", lines[first + 1])

    def test_status(self) -> None:
        """Warnings alone end with 0, a failure with 1."""
        for change, level, status in (
            (server(ahead=timedelta(seconds=6)), Level.WARNING, 0),
            (server(ahead=timedelta(seconds=61)), Level.FAILED, 1),
        ):
            results = make_checks(CHECKS, change(well()))
            self.assertIs(level, results.level)
            for output in ("text", "json"):
                self.assertEqual(f"exit: {status}", printed(results, output, io.BytesIO(), {}).splitlines()[0])

    def test_document(self) -> None:
        """The document is JSON with what was checked."""
        document = json.loads(json.dumps(as_document(make_checks(CHECKS, well()), dict(TARGET))))
        self.assertEqual(
            (1, "svc.check/1", "ok", TARGET), tuple(document[n] for n in ("v", "schema", "level", "target"))
        )


class TargetTests(SynchronousTestCase):
    """Whether a cluster is checked where no flag says it."""

    def test_named(self) -> None:
        """A flag, a variable, a pod and a file in the home folder name one; an empty variable does not."""
        home = Path(self.mktemp()).absolute()
        (home / ".kube").mkdir(parents=True)
        nowhere: dict[str, Any] = {"HOME": str(home)}
        self.assertFalse(cluster_named(Choice("", "", nowhere)))
        self.assertFalse(cluster_named(Choice("", "", {**nowhere, "KUBECONFIG": ""})))
        self.assertTrue(cluster_named(Choice("a", "", nowhere)))
        self.assertTrue(cluster_named(Choice("", "a", nowhere)))
        self.assertTrue(cluster_named(Choice("", "", {**nowhere, "KUBECONFIG": "a"})))
        self.assertTrue(cluster_named(Choice("", "", {**nowhere, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})))
        (home / ".kube" / "config").write_text("")
        self.assertTrue(cluster_named(Choice("", "", nowhere)))
