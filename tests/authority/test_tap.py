"""``twistd svc-authority``: options as those of the other daemons."""

from __future__ import annotations

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.tap import Options


class OptionsTests(SynchronousTestCase):
    """The command line."""

    def test_default(self) -> None:
        """Without --config the file is in the folder of the other daemons."""
        self.assertEqual("/etc/svc/authority.yaml", Options()["config"])

    def test_log_format(self) -> None:
        """An unknown format is refused before anything is read."""
        error = self.assertRaises(UsageError, Options().parseOptions, ["--log-format", "xml"])
        self.assertEqual("--log-format 'xml': expected json or text", str(error))
