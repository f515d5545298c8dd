"""Applications of other protocols through an outbound and an inbound TCP listener, with their own clients."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import psycopg
from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.octets import Octets
from tests.peers.postgresql import DATABASE, RunningPostgres
from tests.peers.programs import find, run
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, answers, end_process, eventually, free_port

MIB = 1024 * 1024
ID = "spiffe://example.org/ns/shop/sa/api"
NAMES = ("postgresql", "redis", "ssh", "grpc", "octets", "nobody", "few")


def policies(*refused: str) -> str:
    """A policy that admits every client to all listeners but these."""
    rules = [{"name": "open", "to": [{"notListeners": ["nobody", *refused]}]}]
    spec = {"authorization": {"action": "Allow", "rules": rules}}
    made = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcClusterPolicy", "metadata": {"name": "streams"}}
    return json.dumps({**made, "spec": spec})


def _redis(stack: ExitStack, folder: Path) -> int:
    port = free_port()
    command = [find("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    _start(stack, command, port)
    return port


def _sshd(stack: ExitStack, folder: Path) -> int:
    """A server for the current user alone, who has one key."""
    port, sshd = free_port(), find("sshd")
    for name in ("host", "user"):
        run([find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", folder / name])
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        "PasswordAuthentication no\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPidFile none\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    _start(stack, [sshd, "-D", "-e", "-f", str(folder / "sshd_config")], port)
    return port


def _start(stack: ExitStack, command: list[str], port: int) -> None:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(end_process, process)
    eventually(lambda: answers(port), what=f"{command[0]} on {port}")


def _grpc(stack: ExitStack) -> int:
    """Echoes: one message for one, and each of a stream for each."""
    same = {"request_deserializer": None, "response_serializer": None}
    handlers = {
        "One": grpc.unary_unary_rpc_method_handler(lambda request, _context: request, **same),
        "Each": grpc.stream_stream_rpc_method_handler(lambda requests, _context: (yield from requests), **same),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(lambda: server.stop(None).wait())
    return port


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    octets, postgres = Octets(stack), RunningPostgres(stack)
    upstreams = {
        "postgresql": f"unix://{postgres.folder}/.s.PGSQL.{postgres.port}",
        "redis": f"127.0.0.1:{_redis(stack, folder)}",
        "ssh": f"127.0.0.1:{_sshd(stack, folder)}",
        "grpc": f"127.0.0.1:{_grpc(stack)}",
        "octets": f"127.0.0.1:{octets.port}",
        "nobody": f"127.0.0.1:{octets.port}",
        "few": f"127.0.0.1:{octets.port}",
    }
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    rules = folder / "policies.yaml"
    rules.write_text(policies())
    inbound, outbound = {name: free_port() for name in NAMES}, {name: free_port() for name in NAMES}
    listeners: list[dict[str, Any]] = []
    for name in NAMES:
        own: dict[str, dict[str, Any]] = {"grpc": {"alpn": ["h2"]}, "few": {"limits": {"connections": 2}}}
        shared = {"protocol": "tcp", **own.get(name, {})}
        listeners += [
            {
                **shared,
                "name": name,
                "direction": "inbound",
                "listen": f"127.0.0.1:{inbound[name]}",
                "upstream": upstreams[name],
            },
            {
                **shared,
                "name": f"to-{name}",
                "direction": "outbound",
                "listen": f"127.0.0.1:{outbound[name]}",
                "upstream": f"127.0.0.1:{inbound[name]}",
                "peer": ID,
            },
        ]
    settings = {"policy": {"files": [str(rules)]}, "accessLog": "on"}
    proxy = RunningProxy(authority, f"127.0.0.1:{octets.port}", listeners=listeners, settings=settings)
    stack.enter_context(proxy)
    return SimpleNamespace(
        proxy=proxy,
        inbound=inbound,
        outbound=outbound,
        folder=folder,
        rules=rules,
        postgres=postgres,
        octets=octets,
        credentials=Credentials.fetch(authority, folder / "id"),
    )


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.rig = SHARED.get()
        self.proxy: RunningProxy = self.rig.proxy

    def connect(self, name: str = "octets") -> socket.socket:
        """A plain connection to an outbound listener."""
        connection = socket.create_connection(("127.0.0.1", self.rig.outbound[name]), 60)
        self.addCleanup(connection.close)
        return connection

    def write(self, text: str) -> None:
        """Replace the policy file as editors do."""
        new = Path(self.rig.folder, "new")
        new.write_text(text)
        before = len(self.proxy.records("svc.proxy.policy.loaded"))
        os.rename(new, self.rig.rules)
        eventually(lambda: len(self.proxy.records("svc.proxy.policy.loaded")) > before, what="other policies in force")


def _read(connection: Any) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


class ApplicationTests(_Case):
    """Each with its own client."""

    def test_postgresql(self) -> None:
        """psycopg and psql; a large result, a large COPY, and a connection that is idle."""
        port = self.rig.outbound["postgresql"]
        where = f"host=127.0.0.1 port={port} user=postgres dbname={DATABASE} sslmode=disable"
        with psycopg.connect(where, autocommit=True) as connection:
            rows = connection.execute("SELECT repeat('x', 1000) FROM generate_series(1, 20000)").fetchall()
            self.assertEqual((20000, 1000), (len(rows), len(rows[0][0])))
            connection.execute("CREATE TEMPORARY TABLE copied (line text)")
            with connection.cursor().copy("COPY copied FROM STDIN") as copy:
                for _ in range(2000):
                    copy.write(b"y" * 4000 + b"\n")
            found = connection.execute("SELECT count(*), sum(length(line)) FROM copied").fetchone()
            self.assertEqual((2000, 8_000_000), found)
        done = run([find("psql"), where, "-tAc", "SELECT 6 * 7"])
        self.assertEqual((0, b"42\n"), (done.returncode, done.stdout), done.stderr)

    def test_redis(self) -> None:
        """redis-cli: a command, and many in a pipe."""
        client = [find("redis-cli"), "-p", str(self.rig.outbound["redis"])]
        self.assertEqual(b"OK\n", run([*client, "set", "key", "value"]).stdout)
        self.assertEqual(b"value\n", run([*client, "get", "key"]).stdout)
        commands = b"".join(b"SET k%d %b\r\n" % (each, b"v" * 500) for each in range(20000))
        done = run([*client, "--pipe"], data=commands)
        self.assertIn(b"errors: 0, replies: 20000", done.stdout, done.stderr)

    def test_ssh(self) -> None:
        """ssh: a command whose input is large, and its exit status."""
        folder = self.rig.folder
        command = [find("ssh"), "-p", str(self.rig.outbound["ssh"]), "-i", folder / "user", "-F", "none"]
        for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "LogLevel=ERROR"):
            command += ["-o", option]
        data = webapp.octets(8 * MIB)
        done = run([*command, f"{getpass.getuser()}@127.0.0.1", "sha256sum; exit 7"], data=data)
        self.assertEqual(7, done.returncode, done.stderr)
        self.assertEqual(hashlib.sha256(data).hexdigest(), done.stdout.split()[0].decode())

    def test_grpc(self) -> None:
        """gRPC: a call, a large message, and a stream in both directions."""
        with grpc.insecure_channel(f"127.0.0.1:{self.rig.outbound['grpc']}") as channel:
            one = channel.unary_unary("/test.Echo/One")
            self.assertEqual(b"hello", one(b"hello", timeout=60))
            self.assertEqual(3 * MIB, len(one(b"x" * (3 * MIB), timeout=60)))
            each = channel.stream_stream("/test.Echo/Each")
            sent = [b"%d" % number * 100 for number in range(1000)]
            self.assertEqual(sent, list(each(iter(sent), timeout=60)))

    def test_netcat_ends_its_stream(self) -> None:
        """``nc -N``: the end of the input reaches the application, whose answer comes back."""
        data = webapp.octets(20 * MIB)
        done = run([find("nc.openbsd"), "-N", "127.0.0.1", str(self.rig.outbound["octets"])], data=data)
        self.assertEqual(hashlib.sha256(data).hexdigest().encode(), done.stdout)


class StreamTests(_Case):
    """What every protocol relies on."""

    def test_answer_after_the_end(self) -> None:
        """A client that reads slowly gets all octets of an application that has closed."""
        connection = self.connect()
        connection.sendall(b"get %d" % (30 * MIB))
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: self.rig.octets.accepted, what="the application's connection")
        self.assertEqual(hashlib.sha256(webapp.octets(30 * MIB)).digest(), hashlib.sha256(_read(connection)).digest())

    def test_tls_client_that_ends_both_layers(self) -> None:
        """A TLS client that sends close_notify and FIN after its question gets the whole answer."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.rig.credentials.context().wrap_bio(incoming, outgoing)
        with socket.create_connection(("127.0.0.1", self.rig.inbound["octets"]), 60) as connection:
            for step in (tls.do_handshake, lambda: tls.write(b"get 5000000"), tls.unwrap):
                while True:
                    try:
                        step()
                        break
                    except ssl.SSLWantReadError:
                        connection.sendall(outgoing.read())
                        if step == tls.unwrap:
                            break
                        incoming.write(connection.recv(65536))
            connection.sendall(outgoing.read())
            connection.shutdown(socket.SHUT_WR)
            incoming.write(_read(connection))
        received = b""
        with contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLWantReadError):
            while data := tls.read(65536):
                received += data
        self.assertEqual(webapp.octets(5_000_000), received)

    def test_refused_listener(self) -> None:
        """A client that no rule admits reaches no application; the denial names policy and rule."""
        accepted = self.rig.octets.accepted
        connection = self.connect("nobody")
        with self.assertRaises(ConnectionError):
            connection.sendall(b"hold")
            connection.recv(1)
        self.assertEqual(accepted, self.rig.octets.accepted)
        record = eventually(lambda: self.proxy.records("svc.proxy.request.denied"))[0]
        self.assertEqual("default-deny", record["attributes"]["policy"])
        closed = {"protocol": "tcp", "cause": "policy_deny"}
        eventually(lambda: self.proxy.metric("svc_proxy_connections_closed_total", **closed))

    def test_connection_limit(self) -> None:
        """A full listener closes the next connection, and takes one again when another has ended."""
        before = len(self.rig.octets.held)
        first, second = self.connect("few"), self.connect("few")
        for each in (first, second):
            each.sendall(b"hold")
        eventually(lambda: len(self.rig.octets.held) == before + 2, what="two connections of the application")
        with contextlib.suppress(ConnectionError):
            self.assertEqual(b"", self.connect("few").recv(1))
        limited = {"protocol": "tcp", "cause": "connection_limit"}
        eventually(lambda: self.proxy.metric("svc_proxy_connections_closed_total", **limited))
        first.close()
        for each in self.rig.octets.held[before:]:
            each.close()

        def served() -> bool:
            with contextlib.suppress(ConnectionError):
                again = self.connect("few")
                again.sendall(b"get 5")
                return len(_read(again)) == 5
            return False

        eventually(served, what="a place for another connection")

    def test_access_log(self) -> None:
        """Each connection is logged once, with the octets of both directions and the deciding rule."""
        connection = self.connect()
        connection.sendall(b"get 1000")
        self.assertEqual(1000, len(_read(connection)))
        connection.close()

        def found() -> list[dict[str, Any]]:
            records = self.proxy.records("svc.proxy.connection.served")
            return [each for each in records if each["attributes"].get("sent_octets") == 1000]

        both = eventually(lambda: len(found()) == 2 and found())
        assert isinstance(both, list)
        inbound = next(each for each in both if each["attributes"]["direction"] == "inbound")
        self.assertEqual((8, "streams"), (inbound["attributes"]["received_octets"], inbound["attributes"]["policy"]))
        self.assertEqual(ID, inbound["peer_spiffe_id"])


class ChangeTests(_Case):
    """Open connections are decided again."""

    def test_changed_policies(self) -> None:
        """Exactly the connections that new policies refuse are closed, within a moment, counted and logged once."""
        held, kept = self.connect(), self.connect("redis")
        held.sendall(b"hold")
        kept.sendall(b"PING\r\n")
        self.assertEqual(b"+PONG\r\n", kept.recv(100))
        eventually(lambda: self.rig.octets.held, what="the application's connection")
        before = len(self.proxy.records("svc.proxy.request.denied"))
        self.addCleanup(self.write, policies())
        self.write(policies("octets"))
        with self.assertRaises(ConnectionError):
            held.recv(1)
        kept.sendall(b"PING\r\n")
        self.assertEqual(b"+PONG\r\n", kept.recv(100))
        eventually(lambda: len(self.proxy.records("svc.proxy.request.denied")) == before + 1)
        closed = {"protocol": "tcp", "cause": "reauthorization"}
        self.assertEqual(1, self.proxy.metric("svc_proxy_connections_closed_total", **closed))
