"""Tests of svc.federation.rootkeys."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.federation.package import sign_package
from svc.federation.rootkeys import MAX_DOCUMENT, RootKeys, RootKeysInvalid
from svc.strictjson import dumps
from tests.federation.material import PARTNER, PROD, content
from tests.vectors.material import make_key

KEYS = RootKeys.make()
DOCUMENT = KEYS.serialize(PROD)


class RootKeysTests(SynchronousTestCase):
    """The document of private keys."""

    def refused(self, data: bytes) -> str:
        """Why a document is not used."""
        error: Any = self.assertRaises(RootKeysInvalid, RootKeys.parse, data, PROD)
        return str(error.defect)

    def changed(self, **members: object) -> bytes:
        """The document with other members."""
        return dumps({**json.loads(DOCUMENT), **members})

    def test_round_trip(self) -> None:
        """What was written is read, and signs packages of its fingerprint."""
        found = RootKeys.parse(DOCUMENT, PROD)
        self.assertEqual(KEYS.roots.kids, found.roots.kids)
        signed = sign_package(content(roots=found.roots), found.signers)
        self.assertEqual(KEYS.roots.fingerprint(PROD), signed.content.fingerprint)
        self.assertNotIn("PrivateKey", repr(KEYS))

    def test_others(self) -> None:
        """Documents of another trust domain, version, order or kind are refused, and no text of theirs is shown."""
        first, second = json.loads(DOCUMENT)["keys"]
        other = json.loads(RootKeys.make().serialize(PROD))["keys"]
        for data, defect in (
            (KEYS.serialize(PARTNER), "another trust domain"),
            (self.changed(v=2), "version 2"),
            (self.changed(fingerprint=KEYS.roots.fingerprint(PARTNER).base32), "damaged"),
            (self.changed(keys=[first, other[1]]), "damaged"),
            (self.changed(keys=[other[0], second]), "damaged"),
            (self.changed(keys=[second, first]), "malformed (TypeError)"),
            (self.changed(keys=[first]), "malformed"),
            (self.changed(keys=[first, "c2VjcmV0"]), "malformed"),
            (self.changed(keys="c2VjcmV0"), "malformed"),
            (RootKeys(make_key("ES384", "root keys"), KEYS.post_quantum).serialize(PROD), "malformed (TypeError)"),
            (b"{}", "malformed"),
            (b"c2VjcmV0", "malformed"),
            (DOCUMENT + b" " * MAX_DOCUMENT, "malformed"),
        ):
            found = self.refused(data)
            self.assertIn(defect, found)
            self.assertNotIn("c2VjcmV0", found)

    @given(st.integers(0, len(DOCUMENT) - 1), st.integers(1, 255))
    def test_damage(self, place: int, change: int) -> None:
        """One changed octet is noticed, or is one that no key, name or number depends on."""
        data = bytearray(DOCUMENT)
        data[place] ^= change
        try:
            found = RootKeys.parse(bytes(data), PROD)
        except RootKeysInvalid:
            return
        self.assertEqual(KEYS.roots.kids, found.roots.kids)
