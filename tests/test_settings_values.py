"""Values of configurations: durations, sizes and addresses, at their limits and in unusual spellings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.settings import HostPort, parse_duration, parse_size


class DurationTests(SynchronousTestCase):
    """Time spans with their unit."""

    def test_units(self) -> None:
        """Each unit, whole and with a fraction."""
        rows = {"0s": 0, "250ms": 0.25, "10s": 10, "1.5m": 90, "5m": 300, "1h": 3600, "90d": 7776000, "0.000001s": 1e-6}
        self.assertEqual({text: parse_duration(text) for text in rows}, rows)

    def test_the_longest(self) -> None:
        """The maximum is a hundred years, in every unit."""
        for text, more in (("36500d", "36501d"), ("876000h", "876001h"), ("52560000m", "52560001m")):
            self.assertEqual(parse_duration(text), 36500 * 86400.0)
            self.assertRaises(ValueError, parse_duration, more)
        self.assertRaises(ValueError, parse_duration, "1000000000s")

    def test_refused(self) -> None:
        """The error for other values says what a duration is."""
        for value in (
            *(
                "",
                "10",
                "s",
                "-1s",
                "+1s",
                "1e3s",
                "1 s",
                " 1s",
                "1s ",
                "1s\n",
                "1S",
                "1sec",
                "1w",
                "1.s",
                ".5s",
                "1,5s",
            ),
            *("1m30s", "0x1s", "1_0s", "٣s", "１s", "1.0000001s", 10, 1.5, True, None, ["1s"], {"s": 1}, b"1s"),
        ):
            error = self.assertRaises(ValueError, parse_duration, value)
            self.assertIn("a duration with its unit, such as 250ms, 10s", str(error))


class SizeTests(SynchronousTestCase):
    """Sizes with their unit."""

    def test_units(self) -> None:
        """Each unit is a power of 1024."""
        rows = {"0B": 0, "512B": 512, "4KiB": 4096, "16MiB": 2**24, "1GiB": 2**30}
        self.assertEqual({text: parse_size(text) for text in rows}, rows)

    def test_the_largest(self) -> None:
        """The maximum is that of a signed 64-bit integer."""
        self.assertEqual(parse_size("9223372036854775807B"), 2**63 - 1)
        self.assertEqual(parse_size("8589934591GiB"), 2**63 - 2**30)
        for text in ("9223372036854775808B", "8589934592GiB", "99999999999999999999B"):
            self.assertRaises(ValueError, parse_size, text)

    def test_refused(self) -> None:
        """The error for other values, also units of 1000, says what a size is."""
        for value in (
            *("", "4", "KiB", "4kiB", "4KB", "4K", "4k", "4M", "4TiB", "-4B", "+4B", "1.5KiB", "4 KiB", " 4B", "4B\n"),
            *("0x4B", "٤B", 4096, 4.0, True, None, ["4B"]),
        ):
            error = self.assertRaises(ValueError, parse_size, value)
            self.assertIn("a size with its unit, such as 512B, 4KiB", str(error))


class HostPortTests(SynchronousTestCase):
    """Addresses."""

    def test_accepted(self) -> None:
        """Names, IPv4 and IPv6 addresses and an empty host are read and formatted unchanged."""
        rows = {
            "127.0.0.1:80": ("127.0.0.1", 80),
            "0.0.0.0:65535": ("0.0.0.0", 65535),
            ":9092": ("", 9092),
            "a:0": ("a", 0),
            "a-b.example_c.org:1": ("a-b.example_c.org", 1),
            "1.a:1": ("1.a", 1),
            "a.example.:1": ("a.example.", 1),
            "[::]:80": ("::", 80),
            "[::1]:80": ("::1", 80),
            "[2001:DB8::1]:443": ("2001:DB8::1", 443),
            "[::ffff:192.0.2.1]:443": ("::ffff:192.0.2.1", 443),
            "a" * 63 + ":1": ("a" * 63, 1),
        }
        self.assertEqual({text: HostPort.parse(text) for text in rows}, {t: HostPort(*row) for t, row in rows.items()})
        self.assertEqual([str(HostPort.parse(text)) for text in rows], list(rows))

    def test_host_port(self) -> None:
        """A HostPort is returned unchanged."""
        address = HostPort("a", 1)
        self.assertIs(HostPort.parse(address), address)

    def test_refused(self) -> None:
        """Hosts that no resolver accepts, or that resolvers read differently, are refused."""
        for value in (
            *(
                "",
                ":",
                "a",
                "a:",
                "80",
                "a:-1",
                "a:+1",
                "a:65536",
                "a:99999",
                "a:100000",
                "a:080",
                "a:0x50",
                "a:1.0",
                "a:٣",
            ),
            *(
                "a:1:2",
                "a b:1",
                " a:1",
                "a:1 ",
                "a:1\n",
                "a\n:1",
                "a/b:1",
                "http://a:1",
                "u@a:1",
                "é.example:1",
                "a..b:1",
            ),
            *(".:1", ".a:1", "-a:1", "a-:1", "a" * 64 + ":1", "a." * 127 + "a:1", "*:80"),
            *("127.1:80", "0177.0.0.1:80", "0x7f.0.0.1:80", "0x7f000001:80", "2130706433:80", "127.0.0.1.:80"),
            *("256.0.0.1:80", "1.2.3:80", "1.2.3.4.5:80", "127.0.0.01:80", "a.0x1:80"),
            *(
                "::1:80",
                "::1",
                "[::1]",
                "[::1]80",
                "[::1",
                "[:::]:80",
                "[1.2.3.4]:80",
                "[a]:80",
                "[]:80",
                "[::1%eth0]:80",
            ),
            *(
                "[12345::]:80",
                "[1:2:3:4:5:6:7:8:9]:80",
                "[[::1]]:80",
                80,
                8.0,
                True,
                None,
                ["a:1"],
                {"host": "a", "port": 1},
            ),
        ):
            error = self.assertRaises(ValueError, HostPort.parse, value)
            self.assertEqual(str(error), "an address host:port with a port up to 65535, IPv6 in brackets", value)

    @given(st.text(max_size=20) | st.text("0123456789abcdefx.:[]-", max_size=20))
    def test_any_text(self, text: str) -> None:
        """Any text is refused, or is an address that is formatted unchanged."""
        try:
            address = HostPort.parse(text)
        except ValueError:
            return
        self.assertEqual(str(address), text)
