"""Names in registries."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Host, digest_of, is_digest, parse_reference, parse_registry

DIGEST = "sha256:" + "0a" * 32
_HOSTS = st.sampled_from(["localhost", "registry.example.com", "10.0.0.1", "[::1]", "a", "a-b.c"])
_COMPONENTS = st.from_regex(r"[a-z0-9]{1,4}((\.|_|__|-{1,3})[a-z0-9]{1,3})?", fullmatch=True)


class RegistryTests(SynchronousTestCase):
    """``host[:port][/prefix]``."""

    def test_forms(self) -> None:
        """Hosts are names and addresses, with ports and prefixes."""
        for text, host, port, prefix in (
            ("Registry.example.COM", "registry.example.com", None, ""),
            ("localhost:5000", "localhost", 5000, ""),
            ("10.0.0.1:5000/acme/svc/", "10.0.0.1", 5000, "acme/svc"),
            ("[2001:DB8::1]:5000/acme", "[2001:db8::1]", 5000, "acme"),
            ("[::1]", "[::1]", None, ""),
            ("r.example.com:65535", "r.example.com", 65535, ""),
        ):
            found = parse_registry(text)
            self.assertEqual((Host(host, port), prefix), (found.host, found.prefix))
        self.assertEqual("acme/svc/manager", parse_registry("r.io/acme").repository("svc/manager"))
        self.assertEqual("manager", parse_registry("r.io").repository("manager"))
        self.assertEqual("registry-1.docker.io", parse_registry("docker.io").host.served_by)

    def test_refused(self) -> None:
        """Schemes, ports out of range, wrong names and prefixes are named."""
        for text, part in (
            ("", "host or port"),
            ("https://r.io", "scheme"),
            ("r.io:0", "port"),
            ("r.io:65536", "port"),
            ("r.io:", "port"),
            ("::1", "host"),
            ("[::g]", "host"),
            ("-r.io", "host"),
            ("r..io", "host"),
            ("user@r.io", "host"),
            ("r.io/Acme", "prefix"),
            ("r.io/a//b", "prefix"),
            ("r.io\n", "host"),
            (f"r.io/{'a' * 256}", "prefix"),
        ):
            with self.assertRaises(RegistryError) as caught:
                parse_registry(text)
            self.assertEqual(("registry_invalid", True), (caught.exception.reason, part in str(caught.exception)), text)

    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text is a registry, whose text gives the same one, or is refused."""
        with contextlib.suppress(RegistryError):
            found = parse_registry(text)
            self.assertEqual(found, parse_registry(str(found)))


class ReferenceTests(SynchronousTestCase):
    """``host[:port]/name[:tag][@digest]``."""

    @given(
        _HOSTS,
        st.none() | st.integers(1, 65535),
        st.lists(_COMPONENTS, min_size=1, max_size=4),
        st.just("") | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True),
        st.sampled_from(["", DIGEST]),
    )
    def test_round_trip(self, host: str, port: int | None, parts: list[str], tag: str, digest: str) -> None:
        """What is written is read."""
        name = "/".join(parts)
        text = f"{Host(host, port)}/{name}{f':{tag}' if tag else ''}{f'@{digest}' if digest else ''}"
        found = parse_reference(text)
        self.assertEqual((Host(host, port), name, tag, digest), (found.host, found.repository, found.tag, found.digest))
        self.assertEqual((text, digest or tag or "latest"), (str(found), found.wanted))

    def test_refused(self) -> None:
        """Each part that is wrong is named."""
        for text, part in (
            ("svc:1.0", "host or port"),
            ("svc", "repository"),
            ("r.io/", "repository"),
            ("r.io/Svc", "repository"),
            ("r.io/svc:", "tag"),
            ("r.io/svc:-a", "tag"),
            (f"r.io/svc:{'a' * 129}", "tag"),
            ("r.io/svc@sha256:00", "digest"),
            ("r.io/svc@", "digest"),
            (f"r.io/svc@{DIGEST.upper()}", "digest"),
            ("docker://r.io/svc", "scheme"),
        ):
            with self.assertRaises(RegistryError) as caught:
                parse_reference(text)
            self.assertEqual(
                ("reference_invalid", True), (caught.exception.reason, part in str(caught.exception)), text
            )

    def test_digests(self) -> None:
        """A digest is made by the algorithm of another one."""
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        self.assertEqual(f"sha256:{empty}", digest_of(b""))
        self.assertTrue(is_digest(digest_of(b"", "sha512:")))
        for wrong in ("", empty, f"md5:{empty}", f"sha256:{empty}0", f"sha256:{empty[:-1]}\n", f"sha512:{empty}"):
            self.assertFalse(is_digest(wrong), wrong)
