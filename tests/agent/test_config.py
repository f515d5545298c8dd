"""The section ``files`` of the agent's configuration."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.agent.config import AgentSettings
from svc.settings import ConfigInvalid, parse


def read(*files: dict[str, Any]) -> AgentSettings:
    """Read a configuration with entries; JSON is YAML."""
    return parse(json.dumps({"trustDomain": "example.org", "files": files}), AgentSettings)


class FilesTests(SynchronousTestCase):
    """What is accepted."""

    def test_names(self) -> None:
        """By default the names are those of spiffe-helper, and those of a leaf are there with an issuer alone."""
        plain, pq = read({"folder": "/a"}, {"folder": "/b", "pqIssuer": "unix:///x", "federated": "others"}).files
        self.assertEqual(["svid.pem", "svid_key.pem", "svid_bundle.pem"], plain.names())
        self.assertEqual([*plain.names(), "others", "pq_svid.pem", "pq_svid_key.pem"], pq.names())
        self.assertEqual((0o600, "SIGHUP", ()), (plain.mode, plain.signal, plain.command))

    def test_modes(self) -> None:
        """A key is for its owner, or for a group."""
        modes = {"0400": 0o400, "0440": 0o440, "0600": 0o600, "0640": 0o640, 600: 0o600}
        for text, mode in modes.items():
            self.assertEqual(mode, read({"folder": "/a", "mode": text}).files[0].mode)

    def test_refused(self) -> None:
        """Each defect names what was expected."""
        for keys, words in (
            ({"folder": "a"}, "absolute path"),
            ({"mode": "0644"}, '"0600" or "0400"'),
            ({"mode": "0660"}, '"0600" or "0400"'),
            ({"mode": True}, '"0600" or "0400"'),
            ({"key": "svid.pem"}, "not svid.pem twice"),
            ({"federated": "svid.pem"}, "not svid.pem twice"),
            ({"svid": "../svid.pem"}, "a name of at most 63"),
            ({"svid": "..data"}, "a name of at most 63"),
            ({"signal": "SIGHUP"}, "signal with pidFile"),
            ({"signal": "SIGKILL", "pidFile": "/x.pid"}, "'SIGHUP'"),
            ({"pidFile": "/x.pid", "command": ["/bin/true"]}, "not both"),
            ({"command": ["true"]}, "absolute path of a program"),
            ({"command": "/bin/true"}, "a list"),
            ({"command": ["/bin/true"] * 65}, "at most 64"),
            ({"commandTimeout": "0s"}, "above 0s"),
        ):
            error = self.assertRaises(ConfigInvalid, read, {"folder": "/a", **keys})
            self.assertIn(words, str(error))

    def test_limits(self) -> None:
        """There are at most 64 entries, and each has a folder of its own."""
        entries = [{"folder": f"/{number}", "command": ["/bin/true"] * 64} for number in range(65)]
        self.assertEqual(64, len(read(*entries[:64]).files))
        self.assertIn("at most 64", str(self.assertRaises(ConfigInvalid, read, *entries)))
        error = self.assertRaises(ConfigInvalid, read, {"folder": "/a"}, {"folder": "/a/"})
        self.assertIn("a folder for each, not /a twice", str(error))
