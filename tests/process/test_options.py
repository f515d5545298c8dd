"""Where the configuration of each daemon may come from."""

from __future__ import annotations

import contextlib
import io
import os

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.tap import Options as AuthorityOptions
from svc.broker.tap import Options as BrokerOptions
from svc.process.options import ProcessOptions
from svc.proxy.tap import Options as ProxyOptions

_LISTENER = '{name: a, listen: ":1"'
RIGHT: dict[type[ProcessOptions], str] = {
    ProxyOptions: "trustDomain: a.example\nlisteners:"
    f' [{_LISTENER}, protocol: http, direction: inbound, upstream: "127.0.0.1:2"}}]\n',
    BrokerOptions: f"listeners: [{_LISTENER.replace(':1', '127.0.0.1:1')}}}]\n",
    AuthorityOptions: "trustDomain: a.example\nsocket: unix:///run/svc/agent.sock\n",
}


class EnvironmentTests(SynchronousTestCase):
    """``--config env:NAME``."""

    def check(self, options: type[ProcessOptions], text: str) -> tuple[object, str, str]:
        """Check a configuration; gives status, output and errors."""
        os.environ["SVC_TEST_CONFIG"] = text
        self.addCleanup(os.environ.pop, "SVC_TEST_CONFIG", None)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            end = self.assertRaises(
                SystemExit, options().parseOptions, ["-c", "env:SVC_TEST_CONFIG", "--check-config", "--offline"]
            )
        return end.code, out.getvalue(), err.getvalue()

    def test_each_daemon(self) -> None:
        """The check names the variable, and so does each defect."""
        for options, text in RIGHT.items():
            valid = (0, "env:SVC_TEST_CONFIG is valid\n", "")
            self.assertEqual(valid, self.check(options, text), options)
            status, out, err = self.check(options, f"{text}surplus: 1\n")
            self.assertEqual((1, ""), (status, out), options)
            self.assertEqual("svc: env:SVC_TEST_CONFIG: surplus: 1: expected no such key\n", err, options)
