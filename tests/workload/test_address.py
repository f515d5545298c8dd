"""Tests of svc.workload.address."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.workload.address import beside, socket_path
from svc.workload.errors import SocketAddressInvalid


class SocketPathTests(SynchronousTestCase):
    """The address of a Workload API."""

    def test_spellings(self) -> None:
        """Both unix: spellings and the bare path name the same file."""
        for text in ("unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"):
            self.assertEqual(socket_path(text), "/run/a.sock")

    def test_refused(self) -> None:
        """Other schemes, hosts, relative paths, folders, queries and over-long paths are refused."""
        for text in (
            "",
            "run/a.sock",
            "unix://host/a.sock",
            "unix:a.sock",
            "tcp://127.0.0.1:80",
            "127.0.0.1:80",
            "unix:///run/",
            "unix:///run/a?b",
            "unix:///run/a#b",
            "/" + "a" * 107,
        ):
            self.assertRaises(SocketAddressInvalid, socket_path, text)

    def test_longest_path(self) -> None:
        """A path of exactly 107 octets is accepted."""
        self.assertEqual(len(socket_path("/" + "a" * 106)), 107)

    def test_beside(self) -> None:
        """A file beside a socket is in its folder."""
        self.assertEqual(beside("unix:///run/svc/a.sock", "pq-bundle.json"), "/run/svc/pq-bundle.json")
