"""Which proxy a request goes through."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.errors import RegistryError
from svc.install.registry.proxies import Proxy, choose_proxy

PROXY = "http://proxy.example.com:3128"


class ProxyTests(SynchronousTestCase):
    """``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``."""

    def chosen(self, host: str, excluded: str, port: int = 443) -> bool:
        """Whether a host is reached through the proxy."""
        return choose_proxy({"HTTPS_PROXY": PROXY, "NO_PROXY": excluded}, "https", host, port) is not None

    def test_variables(self) -> None:
        """Each scheme has its own, in either case of letters; a port and a scheme need not be there."""
        for environment, scheme, wanted in (
            ({"HTTPS_PROXY": PROXY}, "https", "proxy.example.com:3128"),
            ({"https_proxy": "10.0.0.1"}, "https", "10.0.0.1:80"),
            ({"HTTP_PROXY": "[::1]:3128"}, "http", "[::1]:3128"),
            ({"HTTP_PROXY": PROXY}, "https", "None"),
            ({"HTTPS_PROXY": ""}, "https", "None"),
        ):
            self.assertEqual(wanted, str(choose_proxy(environment, scheme, "r.example.com", 443)))

    def test_excluded(self) -> None:
        """Names with their subdomains, subdomains alone, addresses, networks, ports, and all."""
        for host, excluded, wanted in (
            ("r.example.com", "", True),
            ("r.example.com", "example.com", False),
            ("R.Example.com", "r.example.COM", False),
            ("rexample.com", "example.com", True),
            ("example.com", ".example.com", True),
            ("r.example.com", ".example.com", False),
            ("r.example.com", "*.example.com", False),
            ("r.example.com", "a, r.example.com:443", False),
            ("r.example.com", "r.example.com:5000", True),
            ("10.1.2.3", "10.0.0.0/8", False),
            ("10.1.2.3", "10.1.2.3", False),
            ("11.1.2.3", "10.0.0.0/8, 1.2.3", True),
            ("2001:db8::1", "[2001:db8:0::1]:443", False),
            ("2001:db8::1", "2001:db8::/32", False),
            ("r.example.com", "10.0.0.0/99", True),
            ("r.example.com", "*", False),
            ("localhost", "", False),
            ("127.0.0.2", "", False),
            ("::1", "", False),
        ):
            self.assertEqual(wanted, self.chosen(host, excluded), (host, excluded))

    def test_passwords(self) -> None:
        """User and password are decoded for the proxy, and shown nowhere."""
        found = choose_proxy({"HTTP_PROXY": "http://user:p%40ss@proxy:1"}, "http", "r.io", 80)
        assert found is not None
        self.assertEqual("Basic dXNlcjpwQHNz", found.authorization)
        self.assertNotIn("dXNlcjpw", f"{found}{found!r}")

    def test_refused(self) -> None:
        """Proxies of another kind are refused by the name of the variable, without the password."""
        for text in (
            "https://user:secret@proxy",
            "socks5://user:secret@proxy",
            "http://",
            "http://user:secret@proxy:x",
        ):
            with self.assertRaises(RegistryError) as caught:
                choose_proxy({"https_proxy": text}, "https", "r.io", 443)
            shown = f"{caught.exception}{caught.exception.evidence}"
            self.assertEqual((True, False), ("https_proxy" in shown, "secret" in shown))

    @given(st.text(max_size=30), st.text(max_size=30))
    def test_any_text(self, proxy: str, excluded: str) -> None:
        """Any variables give a proxy, none, or an error."""
        with contextlib.suppress(RegistryError):
            found = choose_proxy({"https_proxy": proxy, "no_proxy": excluded}, "https", "10.0.0.1", 443)
            self.assertTrue(found is None or isinstance(found, Proxy))
