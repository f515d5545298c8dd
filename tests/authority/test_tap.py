"""``twistd svc-authority``: options as those of the other daemons, and a reactor of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.keystore import ReadOnlyKeys
from svc.authority.tap import Options
from svc.identity import TrustDomain
from svc.process.clock import utc_now

TOP = Path(__file__).parents[2]
RIGHT = "trustDomain: prod.example\nsocket: unix:///run/svc/agent.sock\n"
#: Parses options as twistd does, and prints which reactor that installed.
PROGRAM = """
import sys
from svc.authority.tap import Options
options = Options()
options.parseOptions(sys.argv[1:])
reactor = sys.modules.get("twisted.internet.reactor")
print(options["settings"].trustDomain, type(reactor).__name__)
"""


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def test_default(self) -> None:
        """Without --config the file is in the folder of the other daemons."""
        self.assertEqual("/etc/svc/authority.yaml", Options()["config"])

    def test_log_format(self) -> None:
        """An unknown format is refused before anything is read."""
        error = self.assertRaises(UsageError, Options().parseOptions, ["--log-format", "xml"])
        self.assertEqual("--log-format 'xml': expected json or text", str(error))

    def test_reactor(self) -> None:
        """Settings are read, and the asyncio reactor is installed."""
        path = Path(self.mktemp()).absolute()
        path.write_text(RIGHT)
        command = [sys.executable, "-c", PROGRAM, "--config", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, cwd=TOP, timeout=300, check=False)
        self.assertEqual(("prod.example AsyncioSelectorReactor\n", ""), (said.stdout, said.stderr))

    def test_write_keys(self) -> None:
        """``--write-keys`` makes a file that the same configuration starts with, and replaces none."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        path, keys = folder / "authority.yaml", folder / "keys.json"
        path.write_text(
            f"trustDomain: prod.example\nworkloadApi: unix:///run/agent.sock\nkeysFile: {keys}\n"
            "pqIssuer: {listen: '127.0.0.1:0'}\n"
        )
        command = [sys.executable, "-c", PROGRAM, "--config", str(path), "--write-keys", str(keys)]
        said = subprocess.run(command, capture_output=True, text=True, cwd=TOP, timeout=300, check=False)
        self.assertEqual((0, "", ""), (said.returncode, said.stdout, said.stderr))
        self.assertEqual(0o600, keys.stat().st_mode & 0o777)
        found = ReadOnlyKeys(str(keys), TrustDomain("prod.example")).open(utc_now())
        self.assertEqual((0, 1), (len(found.x509), len(found.pq)))
        again = subprocess.run(command, capture_output=True, text=True, cwd=TOP, timeout=300, check=False)
        self.assertEqual(1, again.returncode)
        self.assertIn(f"new keys cannot be written to {keys}: File exists", again.stderr)
