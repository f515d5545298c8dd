"""PostgreSQL addresses: what a URL may contain, and what is refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.store.postgresql.address import MAX_HOSTS, MAX_LENGTH, DatabaseAddress

VERIFIED = "sslmode=verify-full&sslrootcert=/etc/svc/ca.pem"


def parsed(text: str) -> DatabaseAddress:
    return DatabaseAddress.parse(text)


class AcceptedTests(SynchronousTestCase):
    """Accepted addresses."""

    def test_remote_with_verification(self) -> None:
        """A server on another machine, verified by name; every part is passed to the client library."""
        address = parsed(f"postgresql://svc@db.example.org:5433/notary?{VERIFIED}&passfile=/etc/svc/pass%20file")
        self.assertEqual(
            {
                "host": "db.example.org",
                "port": "5433",
                "user": "svc",
                "dbname": "notary",
                "sslmode": "verify-full",
                "sslrootcert": "/etc/svc/ca.pem",
                "passfile": "/etc/svc/pass file",
            },
            address.parameters,
        )
        self.assertEqual("db.example.org:5433/notary", address.name)

    def test_on_this_machine(self) -> None:
        """Loopback addresses and sockets need no TLS."""
        for text, host, port in (
            ("postgresql://localhost/n", "localhost", ""),
            ("postgresql://127.0.0.2:5432/n", "127.0.0.2", "5432"),
            ("postgresql://[::1]:5432/n", "::1", "5432"),
            ("postgresql://[::1]/n", "::1", ""),
            ("postgresql:///n?host=/run/postgresql", "/run/postgresql", ""),
            ("postgresql://svc@/n?host=/run/postgresql&port=5433", "/run/postgresql", "5433"),
            ("postgresql://%2Frun%2Fpostgresql/n", "/run/postgresql", ""),
        ):
            address = parsed(text)
            self.assertEqual((host, port, "n"), tuple(address.parameters[key] for key in ("host", "port", "dbname")))

    def test_several_hosts(self) -> None:
        """The URL of a cluster lists all its servers, up to the limit."""
        address = parsed(f"postgresql://a:1,b,[2001:db8::1]:3/n?{VERIFIED}&target_session_attrs=read-write")
        self.assertEqual(("a,b,2001:db8::1", "1,,3"), (address.parameters["host"], address.parameters["port"]))
        self.assertEqual("a:1,b,[2001:db8::1]:3/n", address.name)
        hosts = ["h"] * MAX_HOSTS
        parsed(f"postgresql://{','.join(hosts)}/n?{VERIFIED}")
        self.refused(f"postgresql://{','.join([*hosts, 'h'])}/n?{VERIFIED}", "at most 8 hosts")

    def test_ports_of_several_hosts(self) -> None:
        """In parameters one port applies to every host; otherwise there are as many ports as hosts."""
        for query, ports in (
            ("host=/a,/b&port=6432", "6432,6432"),
            ("host=/a,/b&port=1,2", "1,2"),
            ("host=/a,/b", ","),
        ):
            self.assertEqual(ports, parsed(f"postgresql:///n?{query}").parameters["port"])
        for query in ("host=/a,/b&port=1,2,3", "host=/a,,/b&port=1,2,3", "host=/a&port=1,2"):
            self.refused(f"postgresql:///n?{query}", "one port for all hosts, or one for each")

    def test_service(self) -> None:
        """A service file may name any server, so the server must be verified in every case."""
        address = parsed(f"postgresql:///n?service=notary&{VERIFIED}")
        self.assertEqual("notary/n", address.name)
        self.assertNotIn("host", address.parameters)
        self.refused("postgresql:///n?service=notary", "sslmode=verify-full")
        self.refused("postgresql://localhost/n?service=notary", "sslmode=verify-full")

    def refused(self, text: str, expected: str) -> None:
        self.assertIn(expected, str(self.assertRaises(ValueError, parsed, text)))


class RefusedTests(SynchronousTestCase):
    """Refused addresses."""

    def refused(self, text: str, expected: str) -> None:
        message = str(self.assertRaises(ValueError, parsed, text))
        self.assertIn(expected, message, text)

    def test_no_password(self) -> None:
        """A password in any part is refused with the alternatives, and the error does not repeat it."""
        for text in (
            f"postgresql://svc:hunter2@db/n?{VERIFIED}",
            f"postgresql://svc:@db/n?{VERIFIED}",
            f"postgresql://db/n?{VERIFIED}&password=hunter2",
            f"postgresql://db/n?{VERIFIED}&pass%77ord=hunter2",
            f"postgresql://db/n?{VERIFIED}&sslpassword=hunter2",
        ):
            message = str(self.assertRaises(ValueError, parsed, text))
            self.assertIn("PGPASSFILE", message)
            self.assertNotIn("hunter2", message)

    def test_another_machine_unverified(self) -> None:
        """A server that is not on this machine must be verified, even if it is one of many hosts."""
        for place in (
            "db.example.org",
            "10.0.0.1",
            "localhost.example.org",
            "127.0.0.1,db",
            "0.0.0.0",
            "[2001:db8::1]",
        ):
            for mode in ("", "?sslmode=require", "?sslmode=prefer"):
                self.refused(f"postgresql://{place}/n{mode}", "sslmode=verify-full")
            parsed(f"postgresql://{place}/n?sslmode=verify-ca")
        self.refused("postgresql:///n?host=db", "sslmode=verify-full")
        self.refused("postgresql:///n?host=/run/postgresql,db", "sslmode=verify-full")
        self.refused("postgresql:///n?host=/run/postgresql%2Cdb", "sslmode=verify-full")

    def test_ambiguous(self) -> None:
        """An address that can be parsed in two ways is refused."""
        self.refused("postgresql://127.0.0.1%2Cdb/n", "comma")
        self.refused("postgresql://localhost/n?host=db", "not both")
        self.refused("postgresql://a@b@localhost/n", "one user")
        self.refused("postgresql://a@localhost/n?user=b", "one user")
        self.refused("postgresql://localhost/n?sslmode=verify-full&sslmode=disable", "once")
        self.refused("postgresql://localhost/n?sslmode=disable&ssl%6Dode=verify-full", "once")

    def test_shape(self) -> None:
        """Other text is not a database URL."""
        for text in (
            "", "notary.db", "postgres://localhost/n", "postgresql:/localhost/n", "mysql://localhost/n",
            "postgresql://localhost/n#f", "postgresql://localhost/n n", "postgresql://localhost/n%", "postgresql://localhost/%zz",
            "postgresql://localhost", "postgresql://localhost/", "postgresql://localhost/a/b", "postgresql:///n",
            "postgresql://localhost:0/n", "postgresql://localhost:65536/n", "postgresql://localhost:x/n",
            "postgresql://[::1/n", "postgresql://[x]/n", "postgresql://[::1]5/n", "postgresql://localhost,/n",
            "postgresql://localhost/n?sslmode", "postgresql://localhost/n?sslmode=maybe",
            "postgresql://localhost/n?hostaddr=10.0.0.1", "postgresql://localhost/n?options=-cfsync%3Doff",
            "postgresql://localhost/n?connect_timeout=0", "postgresql://localhost/%00", "postgresql://localhost/%ff",
        ):  # fmt: skip
            self.assertRaises(ValueError, parsed, text)

    def test_length(self) -> None:
        """A URL has at most 2048 characters."""
        start = "postgresql://localhost/"
        parsed(start + "n" * (MAX_LENGTH - len(start)))
        self.assertRaises(ValueError, parsed, start + "n" * (MAX_LENGTH - len(start) + 1))

    @given(st.text(alphabet="aA0:/@%,?&=[].-#2Fe\u00e9", max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text is an address or a ValueError; an address without verification names only this machine."""
        try:
            address = parsed("postgresql://" + text)
        except ValueError:
            return
        hosts = address.parameters["host"].split(",")
        self.assertTrue(all(each == "localhost" or each[0] in "/@" or "127." in each or ":" in each for each in hosts))
