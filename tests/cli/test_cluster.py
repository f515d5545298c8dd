"""The cluster that a command asks, as transcripts; nothing listens where the kubeconfigs point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.cli.compartments_kit import CONFIG, HomeCase
from tests.cli.test_transcripts import runs, transcript_of
from tests.license.material import envelope, text_of

_TRANSCRIPT: Final = Path(__file__).parent / "transcripts" / "cluster.txt"


class ClusterTests(HomeCase):
    """A home folder with kubeconfigs and with a configuration file."""

    def kubeconfig(self, path: str, **ports: int) -> None:
        """Write one whose contexts have servers at these ports; the first is the current one."""
        document = {
            "current-context": next(iter(ports)),
            "clusters": [{"name": n, "cluster": {"server": f"https://127.0.0.1:{port}"}} for n, port in ports.items()],
            "contexts": [{"name": name, "context": {"cluster": name}} for name in ports],
        }
        (self.home / path).parent.mkdir(exist_ok=True)
        (self.home / path).write_text(json.dumps(document))

    def test_transcripts(self) -> None:
        """The flags, then the svc context in effect, then the standard kubeconfig."""
        self.kubeconfig(".kube/config", lab=1, prod=2)
        self.kubeconfig("other", edge=3, prod=4)
        self.kubeconfig("own", lab=5, prod=6)
        (self.home / "x.license").write_text(text_of(envelope()))
        files = {
            "": "",
            "prod": CONFIG,
            "own": f"{CONFIG}kubeconfig: ~/own\n",
            "unselected": CONFIG.replace("currentContext: de-s-alpha\n", ""),
            "lost": CONFIG.replace("currentContext: de-s-alpha", "currentContext: gone"),
            "explicit": f"{CONFIG}requireExplicitContextSwitch: true\n",
        }
        recorded = runs(_TRANSCRIPT.read_text())
        self.assertEqual(set(files), {environ["FILE"] for environ, _command, _expected in recorded})
        for environ, command, expected in recorded:
            self.file.unlink(missing_ok=True)
            if text := files[environ["FILE"]]:
                self.configure(text)
            environ = {name: value.replace("DIR", str(self.home)) for name, value in environ.items()}
            found = transcript_of(command.replace("DIR", str(self.home)), {"HOME": str(self.home), **environ})
            self.assertEqual(found.replace(str(self.home), "DIR").strip(), expected.strip(), f"{environ}: {command}")
