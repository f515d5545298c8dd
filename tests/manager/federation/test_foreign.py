"""The post-quantum roots of peers as one document."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.federation.package import VerifiedPackage, verify_package
from svc.identity import TrustDomain, X509Bundle
from svc.identity.pqbundle import PqBundle, PqBundles
from svc.manager.federation import peers
from svc.manager.federation.foreign import PublishedRoots, published_roots
from svc.manager.federation.peers import Judged, Pinned, PinnedReader, peer_status
from tests.federation.material import PARTNER, PROD, full_content, signed
from tests.vectors.material import NOW

OWN = TrustDomain("own.example.org")


def peer(package: VerifiedPackage, uid: str = "1", *, made: str = "", **spec: Any) -> dict[str, Any]:
    """The object of a peer whose package is pinned."""
    metadata = {"name": f"peer-{uid}", "uid": uid, "creationTimestamp": made}
    found = {"metadata": metadata, "spec": {"trustDomain": package.content.trust_domain.name, **spec}}
    return {**found, "status": peer_status(found, Judged(Pinned(package)), None, None, NOW)}


class ForeignRootsTests(SynchronousTestCase):
    """Peers whose packages are pinned."""

    def setUp(self) -> None:
        """Read nothing yet."""
        self.prod = signed(pq=full_content().pq)
        self.partner = signed(trust_domain=PARTNER, pq=PqBundle(7, X509Bundle(PARTNER)))

    def published(self, *objects: dict[str, Any], own: TrustDomain = OWN) -> dict[TrustDomain, PqBundle]:
        """What is published for objects."""
        return dict(PqBundles.parse(published_roots(objects, own).data).entries)

    def test_all_peers(self) -> None:
        """Those of all pinned packages; a change is another version, and what has not changed is the same one."""
        both = (peer(self.prod), peer(self.partner, "2"))
        first = published_roots(both, OWN)
        wanted = {PROD: full_content().pq, PARTNER: PqBundle(7, X509Bundle(PARTNER))}
        self.assertEqual(wanted, dict(PqBundles.parse(first.data).entries))
        self.assertEqual(first, published_roots(reversed(both), OWN))
        self.assertNotEqual(first.version, published_roots(both[:1], OWN).version)
        self.assertEqual({}, self.published())

    def test_ignored(self) -> None:
        """Nothing of the own trust domain, of another one than the spec names, and where no package is pinned."""
        self.assertEqual({}, self.published(peer(self.prod), own=PROD))
        self.assertEqual({}, self.published(peer(self.partner, trustDomain="other.example.org")))
        self.assertEqual({}, self.published({**peer(self.partner), "status": {}}))
        damaged = peer(self.partner)
        damaged["status"]["pinned"]["data"] = "e30="
        self.assertEqual({}, self.published(damaged))

    def test_duplicate(self) -> None:
        """Of two objects of one trust domain the older one counts."""
        other = signed(trust_domain=PARTNER, pq=PqBundle(9, X509Bundle(PARTNER)))
        found = self.published(peer(other, "1", made="2026-01-02"), peer(self.partner, "2", made="2026-01-01"))
        self.assertEqual(7, found[PARTNER].sequence)

    def test_read_once(self) -> None:
        """A package is verified when it is pinned, and not when anything else of its object changes."""
        verified: list[bytes] = []

        def counted(data: bytes) -> VerifiedPackage:
            verified.append(data)
            return verify_package(data)

        self.patch(peers, "verify_package", counted)
        reader, found = PinnedReader(), peer(self.prod)
        first = reader.read(found)
        found["status"]["continuity"] = "broken"
        second = reader.read(found)
        assert first is not None and second is not None
        self.assertEqual((1, "broken"), (len(verified), second.continuity.value))
        self.assertIs(first.package, second.package)
        newer = signed(issued=NOW + timedelta(days=1), pq=PqBundle(4, X509Bundle(PROD)))
        third = reader.read(peer(newer))
        self.assertEqual((2, newer.content), (len(verified), third and third.package.content))
        reader.keep(())
        reader.read(peer(newer))
        self.assertEqual(3, len(verified))
        self.assertIsNone(reader.read({**found, "status": {}}))

    def test_limit(self) -> None:
        """What does not fit is left out and named; at the limit exactly all fit."""
        peers = [PqBundles({PROD: full_content().pq}), PqBundles({PARTNER: PqBundle(7, X509Bundle(PARTNER))})]
        size = len(PqBundles().serialize()) + sum(len(each.serialize()) for each in peers)
        self.assertEqual((), PublishedRoots.of(peers, limit=size).left_out)
        short = PublishedRoots.of(peers, limit=size - 1)
        self.assertEqual((PARTNER.name,), short.left_out)
        self.assertEqual([PROD], list(PqBundles.parse(short.data).entries))
