"""The topics below which statements and receipts are published by MQTT."""

from __future__ import annotations

from dataclasses import dataclass

from svc.wire.mqtt.primitives import MAX_TEXT, is_valid_text
from svc.wire.mqtt.topics import SHARE, name_defect

#: Octets below a prefix: a kind, an identifier and their separators, with room for longer ones.
_BELOW = 128


@dataclass(frozen=True, slots=True)
class ArtifactPrefix:
    """The beginning of all topics of artifacts, without the last separator."""

    text: str

    @classmethod
    def parse(cls, text: str) -> ArtifactPrefix:
        """
        Read a prefix, with or without a separator at its end.

        Raises:
            ValueError: the text says what was expected.
        """
        prefix = text.removesuffix("/")
        if name_defect(prefix) or f"{prefix}/".startswith(SHARE) or not _is_sendable(prefix):
            raise ValueError("the beginning of a topic, such as $.svc: no wildcards, not $share")
        return cls(prefix)

    def __str__(self) -> str:
        return self.text

    def statement_topic(self, statement_id: str) -> str:
        return f"{self.text}/workload/{statement_id}"

    def receipt_topic(self, receipt_id: str) -> str:
        return f"{self.text}/receipt/{receipt_id}"

    def protects(self, topic: str) -> bool:
        """Whether a valid topic name is that of artifacts, where none but the proxy publishes."""
        return topic == self.text or topic.startswith(f"{self.text}/")


def _is_sendable(prefix: str) -> bool:
    try:
        return is_valid_text(prefix) and len(prefix.encode("utf-8")) <= MAX_TEXT - _BELOW
    except UnicodeEncodeError:  # octets of the environment that are not UTF-8
        return False
