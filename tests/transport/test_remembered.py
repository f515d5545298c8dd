"""Tests of chains that were judged before."""

from __future__ import annotations

from datetime import timedelta

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, TrustAnchor, X509Bundle, X509Svid
from svc.identity.errors import ChainUntrusted, SvidExpired, SvidInvalid, SvidNotYetValid
from svc.testing.ca import TestAuthority
from svc.transport.remembered import RememberedChains
from tests.transport.pairs import AUTHORITY, NOW, days

HOUR = timedelta(hours=1)


def sent(svid: X509Svid) -> tuple[bytes, ...]:
    """What the wire carries of an SVID."""
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in svid.chain)


class RememberedTests(SynchronousTestCase):
    """What was accepted is accepted again as long as nothing changed, and not a moment longer."""

    def setUp(self) -> None:
        """One authority and an empty memory."""
        self.bundles = AUTHORITY.bundles()
        self.svid = AUTHORITY.svid(not_before=NOW - HOUR, not_after=NOW + HOUR)
        self.chains = RememberedChains()

    def test_the_same_evidence(self) -> None:
        """The same chain, read from the wire again, gives the very evidence of the first time."""
        first = self.chains.judge(sent(self.svid), self.bundles, NOW)
        self.assertIs(self.chains.judge(sent(self.svid), self.bundles, NOW + HOUR), first)
        self.assertEqual(first.spiffe_id, self.svid.spiffe_id)

    def test_only_within_its_validity(self) -> None:
        """An accepted chain is refused before its beginning and after its end, each for its own reason."""
        self.chains.judge(sent(self.svid), self.bundles, NOW)
        late, early = NOW + HOUR + timedelta(seconds=1), NOW - HOUR - timedelta(seconds=1)
        self.assertRaises(SvidExpired, self.chains.judge, sent(self.svid), self.bundles, late)
        self.assertRaises(SvidNotYetValid, self.chains.judge, sent(self.svid), self.bundles, early)
        self.chains.judge(sent(self.svid), self.bundles, NOW)

    def test_an_intermediate_may_end_first(self) -> None:
        """The shortest validity of the chain counts, not the leaf's."""
        short = AUTHORITY.intermediate(not_before=NOW - days(1), not_after=NOW + timedelta(minutes=5))
        svid = short.svid(not_before=NOW - HOUR, not_after=NOW + HOUR)
        self.chains.judge(sent(svid), self.bundles, NOW)
        self.assertRaises(SvidExpired, self.chains.judge, sent(svid), self.bundles, NOW + timedelta(minutes=6))

    def test_other_bundles(self) -> None:
        """A root that is gone from the bundle accepts nobody any more, whoever was accepted before."""
        self.chains.judge(sent(self.svid), self.bundles, NOW)
        rival = AUTHORITY.rotated().bundles()
        self.assertRaises(ChainUntrusted, self.chains.judge, sent(self.svid), rival, NOW)
        self.assertRaises(ChainUntrusted, self.chains.judge, sent(self.svid), rival, NOW)

    def test_refusals_are_judged_again(self) -> None:
        """A chain that is refused now may be accepted later."""
        svid = AUTHORITY.svid(not_before=NOW + HOUR, not_after=NOW + 2 * HOUR)
        self.assertRaises(SvidInvalid, self.chains.judge, sent(svid), self.bundles, NOW)
        self.assertEqual(self.chains.judge(sent(svid), self.bundles, NOW + HOUR).spiffe_id, svid.spiffe_id)

    def test_another_chain_of_the_same_identity(self) -> None:
        """It is the certificates that count, not the name in them."""
        self.chains.judge(sent(self.svid), self.bundles, NOW)
        foreign = TestAuthority(str(self.svid.spiffe_id.trust_domain), now=NOW)
        self.assertRaises(ChainUntrusted, self.chains.judge, sent(foreign.svid()), self.bundles, NOW)

    def test_roots_with_a_window(self) -> None:
        """Where a root counts for some time only, every judgement is made anew."""
        trust_domain = self.svid.spiffe_id.trust_domain
        anchor = TrustAnchor(AUTHORITY.certificate, None, NOW + timedelta(minutes=5))
        bundles = BundleSet.of(X509Bundle(trust_domain, (anchor,)))
        first = self.chains.judge(sent(self.svid), bundles, NOW)
        self.assertIsNot(self.chains.judge(sent(self.svid), bundles, NOW), first)
        self.assertRaises(SvidInvalid, self.chains.judge, sent(self.svid), bundles, NOW + timedelta(minutes=6))

    def test_bounded(self) -> None:
        """The chain not seen for longest is forgotten."""
        chains = RememberedChains(most=2)
        peers = [AUTHORITY.svid(f"/{number}") for number in range(3)]
        first, second = (chains.judge(sent(each), self.bundles, NOW) for each in peers[:2])
        self.assertIs(chains.judge(sent(peers[0]), self.bundles, NOW), first)
        chains.judge(sent(peers[2]), self.bundles, NOW)
        self.assertIs(chains.judge(sent(peers[0]), self.bundles, NOW), first)
        self.assertIsNot(chains.judge(sent(peers[1]), self.bundles, NOW), second)
