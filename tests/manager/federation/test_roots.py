"""Federation roots of a cluster: their Secret and their successors."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from functools import cache

from twisted.trial.unittest import SynchronousTestCase

from svc.federation.package import sign_package, verify_package
from svc.federation.succession import MAX_LINKS, check_follows, needed_links
from svc.manager.federation import roots as module
from svc.manager.federation.package import own_content
from svc.manager.federation.roots import (
    KEYS,
    FederationKeysInvalid,
    OwnRoots,
    first_roots,
    read_roots,
    secret_data,
    succeeded,
)
from tests.federation.material import PARTNER, PROD, full_content
from tests.vectors.material import NOW

DAY = timedelta(days=1)


def following(roots: OwnRoots, days: int = 1) -> OwnRoots:
    """The roots that follow others some days later."""
    full, now = full_content(), roots.made + days * DAY
    return succeeded(roots, now, lambda new: own_content(new, full.bundle, full.pq, now))


@cache
def generations(count: int = MAX_LINKS + 2) -> tuple[OwnRoots, ...]:
    """Roots that follow each other."""
    found = [first_roots(PROD, NOW)]
    while len(found) < count:
        found.append(following(found[-1]))
    return tuple(found)


def secret(roots: OwnRoots) -> dict[str, object]:
    """A Secret as the API server has it."""
    return {"metadata": {"name": "svc-federation-keys"}, "data": secret_data(roots)}


class SuccessionTests(SynchronousTestCase):
    """Successors as peers judge them."""

    def test_followed(self) -> None:
        """Who pinned the first roots follows the packages that are kept to the last ones."""
        first, _second, third = generations()[:3]
        full = full_content()
        pinned = sign_package(own_content(first, full.bundle, full.pq, first.made), first.signers)
        content = own_content(third, full.bundle, full.pq, third.made + DAY)
        served = sign_package(content, third.signers)
        links = {number: verify_package(third.links[number]) for number in needed_links(pinned, served)}
        self.assertEqual([2, 3], sorted(links))
        check_follows(pinned, served, third.made + DAY, links)
        self.assertEqual(first.fingerprint, links[2].content.previous.fingerprint)

    def test_kept_packages(self) -> None:
        """The last sixteen are kept, as many as peers may need."""
        last = generations()[-1]
        self.assertEqual(list(range(last.sequence - MAX_LINKS + 1, last.sequence + 1)), sorted(last.links))
        self.assertLess(len(secret_data(last)[KEYS]), 1024 * 1024)

    def test_size(self) -> None:
        """Of larger packages as many are kept as fit into a Secret, the newest ones."""
        last = generations()[2]
        self.patch(module, "MAX_KEPT", len(last.links[3]) + len(last.links[2]))
        self.assertEqual([3, 4], sorted(following(last).links)[-2:])
        self.assertNotIn(2, following(last).links)


class SecretTests(SynchronousTestCase):
    """The data of the Secret."""

    def test_written_and_read(self) -> None:
        """Roots are those that were written, with the packages on the way to them."""
        for roots in generations()[:2]:
            found = read_roots(secret(roots), PROD)
            self.assertEqual(roots.fingerprint, found.fingerprint)
            self.assertEqual(
                (roots.sequence, roots.made, roots.previous, roots.links),
                (found.sequence, found.made, found.previous, found.links),
            )

    def test_refused(self) -> None:
        """Damaged data and another trust domain are refused, and no word of a key is in the error."""
        good = json.loads(base64.b64decode(secret_data(generations()[1])[KEYS]))
        other = json.loads(base64.b64decode(secret_data(generations()[2])[KEYS]))
        for wrong in (
            {},
            {**good, "v": 2},
            {**good, "keys": {**good["keys"], "keys": list(reversed(good["keys"]["keys"]))}},
            {**good, "keys": {**good["keys"], "keys": [good["keys"]["keys"][0][:40], good["keys"]["keys"][1]]}},
            {**good, "keys": other["keys"], "trustDomain": PARTNER.name},
            {**good, "madeAt": 10**30},
            {**good, "previous": None},
            {**good, "links": [1]},
            [],
        ):
            data = {KEYS: base64.b64encode(json.dumps(wrong).encode()).decode()}
            with self.assertRaises(FederationKeysInvalid) as caught:
                read_roots({"metadata": {"name": "svc-federation-keys"}, "data": data}, PROD)
            self.assertNotIn(good["keys"]["keys"][0][:20], str(caught.exception))
        for data in (None, {}, {KEYS: "!"}):
            with self.assertRaises(FederationKeysInvalid):
                read_roots({"metadata": {"name": "svc-federation-keys"}, "data": data}, PROD)
        with self.assertRaisesRegex(FederationKeysInvalid, "of the trust domain prod.example.org"):
            read_roots(secret(generations()[0]), PARTNER)
