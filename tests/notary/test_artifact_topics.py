"""The topics of artifacts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.artifact_topics import ArtifactPrefix
from svc.wire.mqtt import filter_defect, name_defect
from svc.wire.mqtt.primitives import MAX_TEXT


class ArtifactPrefixTests(SynchronousTestCase):
    """Which prefixes there are, and what lies below one."""

    def test_topics(self) -> None:
        """A separator at the end of a prefix makes no difference."""
        for text in ("$.svc", "$.svc/"):
            prefix = ArtifactPrefix.parse(text)
            self.assertEqual(
                ("$.svc/workload/S", "$.svc/receipt/R"), (prefix.statement_topic("S"), prefix.receipt_topic("R"))
            )

    def test_protects(self) -> None:
        """The prefix and all topics below it are protected, those that only begin with the same characters are not."""
        prefix = ArtifactPrefix.parse("plant/notary")
        for topic in ("plant/notary", "plant/notary/", "plant/notary/receipt/x", "plant/notary/other"):
            self.assertTrue(prefix.protects(topic), topic)
        for topic in ("plant", "plant/notary2", "plant/Notary/receipt/x", "/plant/notary", "other/plant/notary"):
            self.assertFalse(prefix.protects(topic), topic)

    def test_refused(self) -> None:
        """Wildcards, shared subscriptions, nothing, and what MQTT cannot send are no prefixes."""
        for text in ("", "/", "a/#", "+/a", "$share", "$share/group", "a\0b", "\udcff"):
            with self.assertRaises(ValueError, msg=repr(text)):
                ArtifactPrefix.parse(text)

    def test_longest(self) -> None:
        """A prefix leaves room for what follows it."""
        longest = "x" * (MAX_TEXT - 128)
        self.assertEqual(longest, ArtifactPrefix.parse(longest).text)
        self.assertRaises(ValueError, ArtifactPrefix.parse, longest + "x")

    @given(st.text(max_size=20))
    def test_any_text(self, text: str) -> None:
        """Any text is refused, or is the beginning of valid topics that it protects."""
        try:
            prefix = ArtifactPrefix.parse(text)
        except ValueError:
            return
        topic = prefix.receipt_topic("A" * 43)
        self.assertEqual(("", ""), (name_defect(topic), filter_defect(f"{prefix}/receipt/#")))
        self.assertTrue(prefix.protects(topic))
