"""Patterns of client identifiers."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID
from svc.policy.attributes import UNKNOWN, Attributes
from svc.proxy.mqtt.client_ids import ClientIdTemplate

DEVICE = SpiffeID.parse("spiffe://prod.example/ns/iot/sa/device")
KNOWN = Attributes(namespace="iot", service_account="device")


def admits(pattern: str, client_id: str, attributes: Attributes = KNOWN, identity: SpiffeID = DEVICE) -> bool:
    """Whether a pattern admits an identifier."""
    return ClientIdTemplate.parse(pattern).admits(client_id, identity, attributes)


class PatternTests(SynchronousTestCase):
    """Which identifiers a pattern admits."""

    def test_placeholders(self) -> None:
        """Each stands for what is known of the client."""
        for pattern, client_id in (
            ("{serviceAccount}", "device"),
            ("{namespace}/{serviceAccount}-*", "iot/device-7"),
            ("{trustDomain}:{name}", "prod.example:device"),
            ("plain", "plain"),
            ("*", ""),
        ):
            self.assertTrue(admits(pattern, client_id), pattern)
            self.assertEqual(admits(pattern, client_id + "x"), pattern.endswith("*"))
        self.assertFalse(admits("{serviceAccount}-*", "other-7"))

    def test_unknown_attributes(self) -> None:
        """A placeholder without a value admits nothing."""
        for pattern in ("{namespace}*", "*{serviceAccount}"):
            self.assertFalse(admits(pattern, "None", UNKNOWN), pattern)
            self.assertFalse(admits(pattern, "", UNKNOWN), pattern)
        root = SpiffeID.parse("spiffe://prod.example")
        self.assertFalse(admits("{name}*", "", UNKNOWN, root))
        self.assertTrue(admits("{trustDomain}", "prod.example", UNKNOWN, root))

    def test_refused_patterns(self) -> None:
        """Unknown placeholders and single braces are no patterns."""
        for text in ("", "{}", "{compartment}", "{name", "name}", "{{name}}", "{na*me}"):
            self.assertRaises(ValueError, ClientIdTemplate.parse, text)

    @given(st.text("ab*", min_size=1, max_size=6), st.text("ab", max_size=8))
    def test_wildcards(self, pattern: str, client_id: str) -> None:
        """``*`` stands for any characters, as often as it is there."""
        expression = ".*".join(map(re.escape, pattern.split("*")))
        self.assertEqual(admits(pattern, client_id), re.fullmatch(expression, client_id) is not None)
