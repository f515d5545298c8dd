"""Tests of :mod:`svc.kube.proxies`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.kube.proxies import proxy_for

PROXY = "http://proxy:3128"


class ProxyTests(SynchronousTestCase):
    """Servers, and what the environment says."""

    def direct(self, host: str, excepted: str) -> bool:
        """Whether no proxy is used."""
        return not proxy_for(f"https://{host}", {"HTTPS_PROXY": PROXY, "NO_PROXY": excepted})

    def test_variables(self) -> None:
        """Each scheme has its variable; one in upper case wins; a proxy without a scheme is one of HTTP."""
        for environment, expected in (
            ({}, ""),
            ({"HTTPS_PROXY": PROXY}, PROXY),
            ({"https_proxy": PROXY}, PROXY),
            ({"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY),
            ({"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY),
            ({"HTTPS_PROXY": "proxy:3128"}, PROXY),
            ({"HTTPS_PROXY": "user:word@proxy"}, "http://user:word@proxy"),
            ({"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, ""),
        ):
            self.assertEqual(expected, proxy_for("https://api.example", environment), environment)
        self.assertEqual(PROXY, proxy_for("http://api.example", {"HTTP_PROXY": PROXY}))

    def test_loopback(self) -> None:
        """What is on this machine is reached without a proxy."""
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:6443", "[::1]", "[::ffff:127.0.0.1]:6443"):
            self.assertTrue(self.direct(host, ""), host)
        for host in ("localhost.example", "10.0.0.1", "[fd00::1]", "my-localhost"):
            self.assertFalse(self.direct(host, ""), host)

    def test_exceptions(self) -> None:
        """Hosts with and without subdomains, addresses, ranges and ports."""
        for excepted, direct, proxied in (
            ("*", ("api.example", "10.0.0.1"), ()),
            ("example", ("example", "api.example", "API.EXAMPLE:6443"), ("anexample", "example.org")),
            (".example", ("api.example", "a.b.example"), ("example",)),
            ("*.example", ("api.example",), ("example",)),
            ("x, Api.Example ,y", ("api.example",), ("example",)),
            ("example:6443", ("api.example:6443",), ("api.example", "api.example:8443")),
            ("example:443", ("api.example",), ("api.example:6443",)),
            ("10.0.0.1", ("10.0.0.1:6443",), ("10.0.0.11", "10.0.0.1.example")),
            ("10.0.0.1:6443", ("10.0.0.1:6443",), ("10.0.0.1",)),
            ("10.1.2.3/8", ("10.255.0.1",), ("11.0.0.1", "10.example")),
            ("fd00::/8", ("[fd00::1]:6443",), ("[fe80::1]", "10.0.0.1")),
            ("fd00::1", ("[FD00:0::1]",), ("[fd00::2]",)),
            ("[fd00::1]:6443", ("[fd00::1]:6443",), ("[fd00::1]",)),
            (",, :1, 10.0.0.0/99, [", (), ("api.example", "10.0.0.1")),
        ):
            for host in direct:
                self.assertTrue(self.direct(host, excepted), f"{host} {excepted}")
            for host in proxied:
                self.assertFalse(self.direct(host, excepted), f"{host} {excepted}")

    @given(st.text("*.:/[]%,-a10f "), st.sampled_from(["api.example", "10.0.0.1:6443", "[fd00::1]"]))
    def test_anything(self, excepted: str, host: str) -> None:
        """Whatever NO_PROXY is, there is an answer; a further entry takes no exception away."""
        if self.direct(host, excepted):
            self.assertTrue(self.direct(host, f"{excepted},other"))
