"""Properties as a value, and the table by which they are read, checked and written."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import NO_PROPERTIES, Properties, ProtocolViolation, TopicAliasInvalid, Version
from svc.wire.mqtt.primitives import Cursor
from svc.wire.mqtt.properties import _TABLE, encode_properties, read_properties
from tests.wire.mqtt import packets

MESSAGES = packets.properties("PUBLISH", Version.V5)


def _alone(properties: Properties) -> bytes:
    """Write properties without their length, which takes another octet from 128 octets on."""
    octets = encode_properties(properties, "PUBLISH", "client")
    begin = 1
    while octets[begin - 1] >= 0x80:
        begin += 1
    return octets[begin:]


class ValueTests(SynchronousTestCase):
    """An instance stores only present members, which its users cannot see."""

    def test_absent(self) -> None:
        """Members given as None or () are absent."""
        made = Properties(content_type=None, user=(), subscription_identifiers=())
        self.assertEqual(
            (made, hash(made), repr(made), bool(made)), (NO_PROPERTIES, hash(NO_PROPERTIES), "Properties()", False)
        )
        for each in fields(Properties):
            self.assertIs(getattr(made, each.name), each.default)

    def test_empty_is_present(self) -> None:
        """Zero, an empty text and empty octets are present."""
        for made in (Properties(message_expiry=0), Properties(content_type=""), Properties(correlation_data=b"")):
            self.assertTrue(made)
            self.assertNotEqual(made, NO_PROPERTIES)

    def test_other_types(self) -> None:
        """Objects of other types are not equal."""
        self.assertNotEqual(Properties(), object())
        self.assertNotEqual(Properties(message_expiry=1), {"message_expiry": 1})

    def test_wrong_name(self) -> None:
        """A property that does not exist cannot be given."""
        error = self.assertRaises(TypeError, cast(Any, Properties), topic="t", user=())
        self.assertIn("topic", str(error))
        self.assertRaises(TypeError, Properties().replace, topic="t")

    def test_frozen(self) -> None:
        """Properties are shared, so they do not change."""
        with self.assertRaises(FrozenInstanceError):
            cast(Any, NO_PROPERTIES).message_expiry = 1
        self.assertIsNone(NO_PROPERTIES.message_expiry)

    @given(MESSAGES, st.fixed_dictionaries({}, optional=packets.MEMBERS["PUBLISH"]), st.booleans())
    def test_replace(self, properties: Properties, members: dict[str, Any], absent: bool) -> None:
        """Both ways to replace members agree, and leave the original alone."""
        before = repr(properties)
        changes = dict.fromkeys(members) if absent else members
        changed = properties.replace(**changes)
        self.assertEqual(changed, replace(properties, **changes))
        self.assertEqual({name: getattr(changed, name) for name in changes}, changes)
        self.assertEqual(repr(properties), before)

    @given(MESSAGES)
    @example(Properties(content_type="t", response_topic="x" * 200))
    def test_read(self, properties: Properties) -> None:
        """Properties that were read are those that were made, in every order on the wire."""
        octets = encode_properties(properties, "PUBLISH", "client")
        parts = [_alone(Properties(**{name: value})) for name, value in vars(properties).items()]
        turned = octets[: len(octets) - sum(map(len, parts))] + b"".join(reversed(parts))
        for each in (octets, turned):
            found = read_properties(Cursor("PUBLISH", each, 0, len(each)), "PUBLISH", "client", 100)
            self.assertEqual((found, hash(found), repr(found)), (properties, hash(properties), repr(properties)))
            self.assertEqual(encode_properties(found, "PUBLISH", "client"), octets)


class TableTests(SynchronousTestCase):
    """The content and order of the table."""

    def test_complete(self) -> None:
        """Each member of the value has one row, in the same order."""
        self.assertEqual([row.member for row in _TABLE], [each.name for each in fields(Properties)])
        self.assertEqual(len({row.identifier for row in _TABLE}), len(_TABLE))

    def test_first_defect(self) -> None:
        """Of several defects the same one is named, in whatever order they come: lowest and highest values first."""
        expiry, alias, format_, maximum = b"\x17\x02", b"\x23\x00\x00", b"\x01\x05", b"\x21\x00\x00"
        for block in (maximum + expiry, expiry + maximum):
            error = self.refusal(block, "CONNECT", ProtocolViolation)
            self.assertIn("request_problem_information must not be 2", str(error))
        for block in (alias + format_, format_ + alias):
            self.assertIn("payload_format must not be 5", str(self.refusal(block, "PUBLISH", ProtocolViolation)))
        topic = b"\x08\x00\x01#"
        for block in (alias + topic, topic + alias):
            self.refusal(block, "PUBLISH", TopicAliasInvalid)

    def test_server_reference(self) -> None:
        """Section 3.14.2.2.5: a client must not send a server reference, alone or with other properties."""
        reference = b"\x1c\x00\x01s"
        for block in (reference, b"\x1f\x00\x01r" + reference):
            self.assertIn("must not set a server reference", str(self.refusal(block, "DISCONNECT", ProtocolViolation)))
            octets = bytes((len(block),)) + block
            found = read_properties(Cursor("DISCONNECT", octets, 0, len(octets)), "DISCONNECT", "server", 100)
            self.assertEqual(found.server_reference, "s")

    def refusal(self, block: bytes, position: Any, error: type[Exception]) -> Exception:
        """Read a block of properties that is refused."""
        octets = bytes((len(block),)) + block
        found: Exception = self.assertRaises(
            error, read_properties, Cursor(position, octets, 0, len(octets)), position, "client", 100
        )
        return found
