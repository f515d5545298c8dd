"""What the manager may do is the same on its page and in the example that is applied."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.pages import page
from tests.peers.waiting import TOP


class RightsTests(SynchronousTestCase):
    """The roles of docs/manager.md."""

    def test_example_has_the_roles_of_the_page(self) -> None:
        """Word for word."""
        (rights,) = re.findall(
            r"^```yaml\n(apiVersion: rbac.*?)^```", page("manager.md"), flags=re.MULTILINE | re.DOTALL
        )
        self.assertIn(rights, (TOP / "docs" / "examples" / "kubernetes" / "manager.yaml").read_text())
