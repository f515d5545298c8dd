"""Tests of ``svc.transport.groups``."""

from __future__ import annotations

from OpenSSL import SSL
from twisted.trial.unittest import SynchronousTestCase

from svc.transport import groups
from svc.transport.groups import HYBRID_GROUPS, apply_groups, check_groups, iana_name, is_hybrid
from tests.refusals import assert_refused


class Binding:
    """A binding that accepts the given groups."""

    def __init__(self, accepted: tuple[str, ...]) -> None:
        self._accepted = accepted
        self.tried: list[str] = []

    def SSL_CTX_set1_curves_list(self, context: object, names: bytes) -> int:
        self.tried.append(names.decode())
        return int(all(name in self._accepted for name in names.decode().replace("/", ":").split(":")))

    def ERR_clear_error(self) -> None:
        """Nothing is queued."""


class GroupsTests(SynchronousTestCase):
    """Tests of the group policy."""

    def test_both_policies_on_this_openssl(self) -> None:
        """The pinned versions have the hybrids."""
        check_groups("default")
        check_groups("require")

    def test_require_fails_closed_without_the_call(self) -> None:
        """A binding without the list call cannot require anything: an error, not a classical connection."""
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        assert_refused(self, "pq_unavailable", apply_groups, context, "require", binding=object())
        apply_groups(SSL.Context(SSL.TLS_SERVER_METHOD), "default", binding=object())

    def test_require_fails_closed_without_the_groups(self) -> None:
        """An OpenSSL that supports classical groups only cannot satisfy ``require``."""
        old = Binding(("X25519", "P-256", "P-384"))
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        assert_refused(self, "pq_unavailable", apply_groups, context, "require", binding=old)
        apply_groups(context, "default", binding=old)
        self.assertEqual(old.tried[-1], "X25519:P-256:P-384")

    def test_require_names_hybrids_only(self) -> None:
        """The list of ``require`` holds no classical group."""
        recording = Binding(HYBRID_GROUPS)
        apply_groups(SSL.Context(SSL.TLS_SERVER_METHOD), "require", binding=recording)
        self.assertEqual(recording.tried, [":".join(HYBRID_GROUPS)])

    def test_names(self) -> None:
        """Groups are spelled as IANA's registry does, whatever OpenSSL calls them."""
        for given, expected in {
            "X25519MLKEM768": "X25519MLKEM768",
            "x25519mlkem768": "X25519MLKEM768",
            "X25519": "x25519",
            "prime256v1": "secp256r1",
            "P-384": "secp384r1",
            "novel": "novel",
            None: "unknown",
            "": "unknown",
        }.items():
            self.assertEqual(iana_name(given), expected)

    def test_hybrids(self) -> None:
        """Only the three hybrids of RFC 10024 are post-quantum."""
        self.assertEqual([is_hybrid(name) for name in HYBRID_GROUPS], [True] * 3)
        for name in ("x25519", "secp256r1", "MLKEM768", "X25519Kyber768Draft00", "unknown", ""):
            self.assertFalse(is_hybrid(name), name)

    def test_preference_classes(self) -> None:
        """The default list puts the hybrids into a class before the classical groups."""
        self.assertEqual(
            groups._group_lists("default")[0],
            "X25519MLKEM768:SecP256r1MLKEM768:SecP384r1MLKEM1024/X25519:P-256:P-384",
        )
