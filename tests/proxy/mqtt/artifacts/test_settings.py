"""The section ``artifacts`` of a listener."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.artifacts.settings import ArtifactSettings
from svc.wire.mqtt.primitives import MAX_TEXT


class ArtifactSettingsTests(SynchronousTestCase):
    """Keys, defaults and rules between keys."""

    def refused(self, key: str, **values: Any) -> None:
        error = self.assertRaises(ValidationError, ArtifactSettings, **values)
        [problem] = error.errors()
        self.assertEqual((key,) if key else (), problem["loc"])

    def test_defaults(self) -> None:
        """The prefix is that of svc curl, and the session is anonymous."""
        settings = ArtifactSettings()
        self.assertEqual(("$.svc", None, None, 1024), tuple(dict(settings).values()))

    def test_prefix(self) -> None:
        """A prefix is the beginning of a topic."""
        self.assertEqual("a/b", ArtifactSettings(prefix="a/b/").prefix)
        for prefix in ("", "#", "a/+", "$share/a"):
            self.refused("prefix", prefix=prefix)

    def test_queue(self) -> None:
        """The queue is bounded."""
        for queue in (1, 65536):
            self.assertEqual(queue, ArtifactSettings(queue=queue).queue)
        for queue in (0, 65537):
            self.refused("queue", queue=queue)

    def test_user(self) -> None:
        """A password needs a user name, which MQTT can send."""
        self.assertEqual("u", ArtifactSettings(username="u", passwordFile="/p").username)
        self.refused("", passwordFile="/p")
        longest = "ü" * (MAX_TEXT // 2)
        self.assertEqual(longest, ArtifactSettings(username=longest).username)
        for username in ("", "a\0", longest + "xy"):
            self.refused("username", username=username)
