"""Lists of referrers."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Descriptor, Host, digest_of, is_tag
from svc.install.registry.referrers import next_page, parse_index, referrer_in, referrers_tag, write_index

HOST = Host("r.io")
DIGEST = digest_of(b"")
_KEYS = st.sampled_from(
    ["manifests", "subject", "config", "mediaType", "digest", "size", "artifactType", "annotations"]
)
_VALUES: st.SearchStrategy[Any] = st.none() | st.just(DIGEST) | st.text(max_size=5) | st.integers(0, 9)
_DOCUMENTS = st.recursive(_VALUES, lambda each: st.dictionaries(_KEYS, each) | st.lists(each, max_size=3), max_leaves=9)


class ReferrersTests(SynchronousTestCase):
    """The index of the manifests with one subject."""

    def test_round_trip(self) -> None:
        """What is written is read."""
        wanted = [Descriptor("m", DIGEST, 1), Descriptor("m", DIGEST, 2, "kind", {"a": "b"})]
        self.assertEqual(wanted, parse_index(HOST, write_index(wanted)))

    def test_subject(self) -> None:
        """The type of a referrer is its own, else that of its configuration."""
        for document, wanted in (
            ({"subject": {"digest": DIGEST}, "artifactType": "own", "config": {"mediaType": "other"}}, "own"),
            ({"subject": {"digest": DIGEST}, "config": {"mediaType": "other"}}, "other"),
            ({"subject": {"digest": DIGEST}, "annotations": ["a"]}, ""),
            ({"subject": {"digest": "sha256:x"}}, None),
            ({"subject": DIGEST}, None),
            ({}, None),
        ):
            found = referrer_in(json.dumps(document).encode(), "m", DIGEST)
            self.assertEqual(wanted, found and found[1].artifact_type)

    def test_tags(self) -> None:
        """The tag for a digest of either algorithm is one."""
        for algorithm in ("sha256:", "sha512:"):
            self.assertTrue(is_tag(referrers_tag(digest_of(b"", algorithm))))
        self.assertEqual(DIGEST.replace(":", "-"), referrers_tag(DIGEST))

    def test_pages(self) -> None:
        """The next page is that of the relation ``next``."""
        self.assertEqual("/v2/a?n=1", next_page('</v2/a?n=1>; rel="next"'))
        self.assertEqual("/b", next_page('</a>; rel="prev", </b>; rel=next'))
        self.assertEqual("", next_page('</a>; rel="prev"'))

    @given(st.binary(max_size=40) | _DOCUMENTS.map(lambda document: json.dumps(document).encode()))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets are a list or refused, and a manifest with a subject or without."""
        with contextlib.suppress(RegistryError):
            parse_index(HOST, data)
        found = referrer_in(data, "m", DIGEST)
        write_index([] if found is None else [found[1]])
