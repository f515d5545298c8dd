"""The configuration of README.md, run as it is but for its addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.pages import Command, steps
from tests.peers.programs import svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import TOP, answers, free_port


class UseTests(SynchronousTestCase):
    """The section "Use it"."""

    def setUp(self) -> None:
        page = (TOP / "README.md").read_text()
        self.section = re.search(r"^## Use it\n.*?(?=^## )", page, re.MULTILINE | re.DOTALL)[0]  # type: ignore[index]
        [self.text] = re.findall(r"^```yaml\n(.*?)^```", self.section, re.MULTILINE | re.DOTALL)

    def test_checked(self) -> None:
        """The command that checks it prints what the page shows."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "proxy.yaml").write_text(self.text)
        check = next(each for each in steps(self.section) if isinstance(each, Command))
        program, *arguments = check.text.split()
        command = [str(Path(sys.executable).parent / Path(program).name), *arguments]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        self.assertEqual((0, check.output), (ran.returncode, ran.stdout), ran.stderr)

    def test_run(self) -> None:
        """A request to the web application is verified with its receipt; the other listeners accept connections."""
        with ExitStack() as stack:
            authority = stack.enter_context(RunningAuthority("prod.example.org", entries=[entry("/ns/shop/sa/web")]))
            application = f"127.0.0.1:{webapp.start(stack)}"
            settings: Any = strictyaml.loads(self.text)
            settings["spiffeSocketPath"] = authority.address
            settings["notary"]["pqIssuer"] = authority.pq_address
            for each in settings["listeners"]:
                each["listen"] = f"127.0.0.1:{free_port()}"
                each["upstream"] = application
            proxy = RunningProxy(authority, application)
            settings["notary"]["path"] = str(proxy.folder / "notary.db")
            proxy.config = settings | {key: proxy.config[key] for key in ("adminAddr", "metricsAddr")}
            stack.enter_context(proxy)
            web, *others = [each["listen"] for each in settings["listeners"]]
            expected = ("--expect-id", "spiffe://prod.example.org/ns/shop/sa/web")
            ran = svc(
                "curl", "-n", "signRequest", "--spiffe-socket-path", authority.address, *expected, f"https://{web}/"
            )
            self.assertEqual(0, ran.returncode, ran.stderr)
            self.assertEqual([True, True], [answers(int(each.rpartition(":")[2])) for each in others])
