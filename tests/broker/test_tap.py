"""``twistd svc-broker``: how a start with files that are not valid fails."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.proxy.test_tap import started

CONFIG = """
trustDomain: x.org
listeners: [{name: a, listen: "127.0.0.1:8883", tls: {spiffe: true}, acl: []}]
"""


class StartTests(SynchronousTestCase):
    """The service that twistd makes."""

    def test_deny_lists(self) -> None:
        """A deny list that is not valid fails the start with each defect and its file."""
        listed, config = Path(self.mktemp()).resolve(), Path(self.mktemp())
        listed.write_text("{kind: SvcDenyList, apiVersion: svc.internal/v1alpha1, metadata: {name: A}, spec: 1}")
        config.write_text(f"{CONFIG}policy: {{files: [{listed}]}}\n")
        done = started("svc.broker.tap", config)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual([str(listed)] * 2, [line.split(": ")[1] for line in done.stderr.splitlines()], done.stderr)
