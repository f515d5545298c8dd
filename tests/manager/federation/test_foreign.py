"""The post-quantum roots of peers as one document."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.federation.package import VerifiedPackage
from svc.identity import TrustDomain, X509Bundle
from svc.identity.pqbundle import PqBundle, PqBundles
from svc.manager.federation import foreign
from svc.manager.federation.foreign import ForeignRoots, PublishedRoots
from svc.manager.federation.peers import Judged, Pinned, peer_status, read_pinned
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
        self.roots = ForeignRoots(OWN)

    def published(self, *objects: dict[str, Any]) -> dict[TrustDomain, PqBundle]:
        """What is published for objects."""
        return dict(PqBundles.parse(self.roots.published(objects).data).entries)

    def test_all_peers(self) -> None:
        """Those of all pinned packages; a change is another version, and what has not changed is the same one."""
        both = (peer(self.prod), peer(self.partner, "2"))
        first = self.roots.published(both)
        wanted = {PROD: full_content().pq, PARTNER: PqBundle(7, X509Bundle(PARTNER))}
        self.assertEqual(wanted, dict(PqBundles.parse(first.data).entries))
        self.assertEqual(first, self.roots.published(reversed(both)))
        self.assertNotEqual(first.version, self.roots.published(both[:1]).version)
        self.assertEqual({}, self.published())

    def test_ignored(self) -> None:
        """Nothing of the own trust domain, of another one than the spec names, and where no package is pinned."""
        self.roots = ForeignRoots(PROD)
        self.assertEqual({}, self.published(peer(self.prod)))
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
        read: list[str] = []

        def counted(found: dict[str, Any]) -> Pinned | None:
            read.append(found["metadata"]["uid"])
            return original(found)

        original = read_pinned
        self.patch(foreign, "read_pinned", counted)
        found = peer(self.prod)
        self.published(found)
        found["status"]["nextPoll"] = "2026-01-01T00:00:00Z"
        self.published(found, peer(self.partner, "2"))
        self.assertEqual(["1", "2"], read)
        newer = signed(issued=NOW + timedelta(days=1), pq=PqBundle(4, X509Bundle(PROD)))
        self.assertEqual(4, self.published(peer(newer), peer(self.partner, "2"))[PROD].sequence)
        self.assertEqual(["1", "2", "1"], read)

    def test_limit(self) -> None:
        """What does not fit is left out and named; at the limit exactly all fit."""
        peers = [PqBundles({PROD: full_content().pq}), PqBundles({PARTNER: PqBundle(7, X509Bundle(PARTNER))})]
        size = len(PqBundles().serialize()) + sum(len(each.serialize()) for each in peers)
        self.assertEqual((), PublishedRoots.of(peers, limit=size).left_out)
        short = PublishedRoots.of(peers, limit=size - 1)
        self.assertEqual((PARTNER.name,), short.left_out)
        self.assertEqual([PROD], list(PqBundles.parse(short.data).entries))
