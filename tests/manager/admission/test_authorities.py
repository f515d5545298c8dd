"""The authorities of the webhook: whatever the instant, what serves is signed by what is trusted."""

from __future__ import annotations

from datetime import UTC, timedelta

from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.manager.admission.authorities import Authorities, AuthoritiesDamaged, CertificateAuthority, advance, renewal
from tests.license.material import NOW as START

LIFE = timedelta(hours=3)
NOW = START.astimezone(UTC)


def never(_certificate: x509.Certificate) -> bool:
    """Nothing is published yet."""
    return False


def at_once(_certificate: x509.Certificate) -> bool:
    """Everything is published."""
    return True


class AdvanceTests(SynchronousTestCase):
    """One step."""

    def test_first(self) -> None:
        """There is one authority, which ends after its life."""
        made = advance(None, NOW, LIFE, never)
        self.assertEqual((None, None), (made.next, made.previous))
        self.assertEqual(NOW + LIFE, made.current.end)
        self.assertIs(made, advance(made, NOW + LIFE * 0.66, LIFE, never))

    def test_successor_is_published_before_it_signs(self) -> None:
        """After two thirds the next one waits, is trusted, and signs when it was published."""
        first = advance(None, NOW, LIFE, never)
        late = NOW + LIFE * 2 / 3 + timedelta(seconds=1)
        waiting = advance(first, late, LIFE, at_once)
        assert waiting.next is not None
        self.assertEqual((first.current, 2), (waiting.current, len(waiting.trusted)))
        self.assertIs(waiting, advance(waiting, late, LIFE, never))
        followed = advance(waiting, late, LIFE, at_once)
        self.assertEqual((waiting.next, None, first.current), (followed.current, followed.next, followed.previous))
        self.assertEqual(set(waiting.trusted), set(followed.trusted))
        self.assertEqual(1, len(advance(followed, first.current.end, LIFE, never).trusted))

    def test_manager_was_away(self) -> None:
        """An authority that has ended is replaced at once, by the one that waits where that has not ended."""
        first = advance(None, NOW, LIFE, never)
        waiting = advance(first, NOW + LIFE * 0.9, LIFE, never)
        self.assertEqual(waiting.next, advance(waiting, NOW + LIFE, LIFE, never).current)
        much_later = NOW + 3 * LIFE
        self.assertEqual(much_later + LIFE, advance(waiting, much_later, LIFE, never).current.end)

    @given(st.lists(st.tuples(st.integers(0, 7200), st.booleans()), max_size=6))
    def test_serving_certificate_is_trusted(self, steps: list[tuple[int, bool]]) -> None:
        """Whatever time passes between steps, and whatever was published, what the current one signs verifies."""
        now, authorities = NOW, advance(None, NOW, LIFE, never)
        trusted = authorities.trusted
        for seconds, published in steps:
            now += timedelta(seconds=seconds)
            before = authorities
            authorities = advance(authorities, now, LIFE, lambda _certificate, seen=published: seen)  # type: ignore[misc]
            if authorities.current != before.current and now < before.current.end:
                self.assertIn(authorities.current.certificate, trusted, "it was published before it signs")
            trusted = authorities.trusted
            (leaf,) = authorities.current.issue(("webhook.svc",), now, LIFE).chain
            verifier = PolicyBuilder().store(Store(list(trusted))).time(now.replace(tzinfo=None))
            verifier.build_server_verifier(x509.DNSName("webhook.svc")).verify(leaf, [])


class CertificateTests(SynchronousTestCase):
    """What an authority issues, and how it is kept."""

    def test_end_of_a_certificate(self) -> None:
        """It ends with its life, or with its authority, and is replaced after two thirds."""
        authority = CertificateAuthority.make(NOW, LIFE)
        for life in (timedelta(hours=1), timedelta(days=30)):
            tls = authority.issue(("a", "b"), NOW, life)
            kept = min(life, LIFE)
            self.assertEqual(NOW + kept, tls.chain[0].not_valid_after_utc)
            self.assertEqual(NOW + kept * 2 / 3, renewal(tls, NOW, life))

    def test_secret(self) -> None:
        """The Secret gives back the same authorities; what is damaged is named."""
        whole = Authorities(*(CertificateAuthority.make(NOW, LIFE) for _ in range(3)))
        data = whole.to_data()
        self.assertEqual(whole, Authorities.from_data(data))
        self.assertEqual(whole.bundle, Authorities.from_data(data).bundle)
        for damaged, said in (
            ({}, "it has no current.crt"),
            ({**data, "next.key": data["current.key"]}, "next.key is not that of next.crt"),
            ({**data, "previous.crt": "AAAA"}, "previous.crt or previous.key cannot be read"),
            ({"current.crt": data["current.crt"]}, "current.crt or current.key cannot be read"),
        ):
            with self.assertRaises(AuthoritiesDamaged) as caught:
                Authorities.from_data(damaged)
            self.assertIn(said, str(caught.exception))
