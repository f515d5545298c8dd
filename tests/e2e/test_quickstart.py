"""``bin/quickstart --kubernetes``: what the first screen of ``docs/kubernetes.md`` promises."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from clusters.cluster import Cluster, NotPossible
from clusters.kubernetes import ToolMissing, folder_of
from tests.peers.pages import Command, page, steps
from tests.peers.waiting import TOP

NEEDS_TOOLS = ("helm", "spire")
_TIME = re.compile(r"(?m)^quickstart +[0-9.]+ s")
_NAME = re.compile(r"quickstart-[0-9a-f]{8}")


class KubernetesQuickstartTests(SynchronousTestCase):
    """A whole run."""

    def test_first_screen(self) -> None:
        """It prints what the page shows, from the images to the removal, and leaves no cluster."""
        try:
            Cluster.check()
            folder_of("helm")
        except (NotPossible, ToolMissing) as missing:
            raise SkipTest(str(missing)) from missing
        command = next(each for each in steps(page("kubernetes.md")) if isinstance(each, Command))
        program, *arguments = command.text.removeprefix("sudo ").split()
        clusters = set(Path("/var/tmp").glob("svc-cluster-quickstart-*"))
        ran = subprocess.run([str(TOP / program), *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(0, ran.returncode, ran.stderr)
        shown = Command(command.machine, command.prompt, command.text, _uniform(command.output))
        self.assertRegex(_uniform(ran.stderr), shown.pattern)
        self.assertEqual(clusters, set(Path("/var/tmp").glob("svc-cluster-quickstart-*")))


def _uniform(output: str) -> str:
    """Without what differs from run to run."""
    return _NAME.sub("quickstart-NAME", _TIME.sub("quickstart TIME", output))
