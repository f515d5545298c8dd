"""Topic filters and client identifiers as rules name them."""

from __future__ import annotations

from dataclasses import dataclass

from svc.policy.paths import MAX_PATTERN, PatternMalformed
from svc.wildcards import fits
from svc.wire.mqtt.topics import SHARE, filter_defect


def parse_topic_filter(text: str) -> str:
    """Read a topic filter that is not shared; raises PatternMalformed."""
    if len(text) > MAX_PATTERN or text.startswith(SHARE) or "\0" in text or filter_defect(text):
        raise PatternMalformed(text=text, expected="a topic filter, such as devices/+/state or devices/#")
    return text


@dataclass(frozen=True, slots=True)
class ClientIdPattern:
    """A client identifier, or all that begin and end alike: one ``*`` stands for any characters, or none."""

    text: str

    @classmethod
    def parse(cls, text: str) -> ClientIdPattern:
        """Read a pattern; raises PatternMalformed."""
        if not text or len(text) > MAX_PATTERN or text.count("*") > 1:
            raise PatternMalformed(text=text, expected="a client identifier, in which one * stands for any characters")
        return cls(text)

    def matches(self, client_id: str) -> bool:
        """Whether a client identifier is one of these."""
        return fits(self.text.split("*"), client_id)

    def __str__(self) -> str:
        return self.text
