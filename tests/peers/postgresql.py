"""
A real PostgreSQL server with a database of its own, on a Unix socket and on loopback, TLS included.

::

    server = RunningPostgres(stack)          # made and started; SkipTest where it is not installed
    server.url()                             # postgresql://svc@/notary?host=… by socket
    server.url(tls=True)                     # over TCP, verified by the server's certificate
    server.kill(); server.start()            # a crash and what comes after it
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from twisted.trial.unittest import SkipTest

from svc.store.postgresql.address import DatabaseAddress
from tests.peers.folders import short_folder
from tests.peers.waiting import eventually, free_port, runs

#: The role that the proxy is; owns the database.
ROLE = "svc"
DATABASE = "notary"

_CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{folder}'
max_connections = 40
shared_buffers = 32MB
fsync = on
synchronous_commit = off  # The store must not depend on it.
ssl = on
ssl_cert_file = '{folder}/server.crt'
ssl_key_file = '{folder}/server.key'
log_min_messages = warning
{more}
"""
#: By socket without a password, over TCP with one and with TLS.
_ACCESS = """
local all all trust
local replication all trust
hostssl all all 127.0.0.1/32 scram-sha-256
"""


def programs() -> Path:
    """
    Find the server's programs.

    Returns:
        The newest folder that has them.

    Raises:
        SkipTest: it is not installed; names the Debian package that has it.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    if not found:
        raise SkipTest("initdb is missing: apt-get install postgresql")
    return found[-1].parent


class RunningPostgres:
    """
    One server and its folder.

    Args:
        stack: ends it.
        settings: further lines of its configuration.
        copy_of: a primary that it follows; then it takes no writes.

    Attributes:
        folder: where the socket, certificates and data lie.
        port: of its loopback address, and of its socket.
    """

    def __init__(self, stack: ExitStack, *settings: str, copy_of: RunningPostgres | None = None) -> None:
        self._programs = programs()
        self.folder = short_folder(stack, "svc-pg-")
        self.folder.chmod(0o755)
        self.port = free_port()
        self.certificate = self.folder / "server.crt"
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        # Started by root it refuses to run: then another user is found for it.
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self._create(settings, copy_of)
        stack.callback(self.stop)
        self.start()
        if copy_of is None:
            self._create_database()

    def url(self, *, tls: bool = False, role: str = ROLE) -> str:
        """
        Say how the store reaches it.

        Args:
            tls: over TCP, else by the socket.
            role: who connects; over TCP the role's password is taken from ``passfile``.

        Returns:
            The URL.
        """
        if tls:
            verified = f"sslmode=verify-full&sslrootcert={self.certificate}&passfile={self.passfile}"
            return f"postgresql://{role}@localhost:{self.port}/{DATABASE}?{verified}"
        return f"postgresql://{role}@/{DATABASE}?host={self.folder}&port={self.port}"

    def address(self, *, tls: bool = False, role: str = ROLE) -> DatabaseAddress:
        """
        The same, read.

        Args:
            tls: over TCP, else by the socket.
            role: who connects.

        Returns:
            The address.
        """
        return DatabaseAddress.parse(self.url(tls=tls, role=role))

    @property
    def passfile(self) -> Path:
        """Holds the password of the role."""
        return self.folder / "passfile"

    @property
    def log(self) -> str:
        """What the server wrote."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user(),
            )
        eventually(self._answers, 60, "a connection to the server")

    def kill(self) -> None:
        """End it as the loss of its machine does: every process of it at once, nothing said, nothing written."""
        process, self._process = self._process, None
        if process is not None:
            self._signal_all(process, signal.SIGKILL)
            process.wait(60)
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def crash(self) -> None:
        """End it in a hurry (``pg_ctl stop -m immediate``): connections are cut, the log is replayed at the start."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it in order, connections or not (``fast``)."""
        self.resume()
        self._end(signal.SIGINT)

    def freeze(self) -> None:
        """Suspend all its processes: connections stay open, nothing is answered."""
        if self._process is not None:
            self._signal_all(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """End that."""
        if self._process is not None:
            self._signal_all(self._process, signal.SIGCONT)

    def admin(self, *statements: str, database: str = DATABASE) -> list[tuple[Any, ...]]:
        """
        Say something to it as its superuser.

        Args:
            statements: SQL, each in a transaction of its own.
            database: where.

        Returns:
            The rows of the last one, where it has any.
        """
        with psycopg.connect(
            host=str(self.folder), port=self.port, user="postgres", dbname=database, autocommit=True
        ) as connection:
            cursor = None
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor is not None and cursor.description else []

    def cut_connections(self) -> int:
        """
        End every connection of the role, as an administrator does.

        Returns:
            How many there were.
        """
        query = f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = '{ROLE}'"
        return len(self.admin(query))

    def standby(self, stack: ExitStack) -> RunningPostgres:
        """
        Start a server that follows this one.

        Args:
            stack: ends it.

        Returns:
            The standby.
        """
        return RunningPostgres(stack, copy_of=self)

    def require_standby(self) -> None:
        """From now on a commit waits until the standby has it."""
        self.admin("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        followed = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        eventually(lambda: self.admin(followed) == [(1,)], 60, "a synchronous standby")

    def promote(self) -> None:
        """Let it take writes."""
        self.admin("SELECT pg_promote()")

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log[-2000:]}")
        try:
            self.admin("SELECT 1", database="postgres")
        except psycopg.OperationalError:
            return False
        return True

    def _create(self, settings: Sequence[str], copy_of: RunningPostgres | None) -> None:
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        # The data is thrown away if this very moment is interrupted: no need to wait for the disk.
        if copy_of is None:
            self._run("initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N")
        else:
            source = f"host={copy_of.folder} port={copy_of.port} user=postgres"
            self._run("pg_basebackup", "-D", self._data, "-d", source, "-R", "-N", "-c", "fast")
        self._make_certificate()
        text = _CONFIGURATION.format(port=self.port, folder=self.folder, more="\n".join(settings))
        (self._data / "postgresql.conf").write_text(text)
        (self._data / "pg_hba.conf").write_text(_ACCESS)
        self.passfile.write_text(f"*:*:*:{ROLE}:secret-of-the-role\n")
        self.passfile.chmod(0o600)

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._programs / program, *arguments]
        done = subprocess.run(command, capture_output=True, check=False, timeout=180, **self._as_user())
        if done.returncode:
            raise AssertionError(f"{program}: {done.stderr.decode(errors='replace')[-2000:]}")

    def _make_certificate(self) -> None:
        key = self.folder / "server.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", str(key), "-out", str(self.certificate), "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=DNS:localhost"]
        if shutil.which("openssl") is None:
            raise SkipTest("openssl is missing: apt-get install openssl")
        subprocess.run(command, capture_output=True, check=True, timeout=180)
        key.chmod(0o600)
        if self._user is not None:
            os.chown(key, self._user.pw_uid, self._user.pw_gid)

    def _create_database(self) -> None:
        self.admin(
            f"CREATE ROLE {ROLE} LOGIN PASSWORD 'secret-of-the-role'",
            "CREATE ROLE worker LOGIN",
            f"CREATE DATABASE {DATABASE} OWNER {ROLE}",
            database="postgres",
        )

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _signal_all(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Reach the server and its children, each of which leads a session of its own."""
        pids = [process.pid]
        if number is signal.SIGKILL:
            # Stopped first, it can start no further child.
            process.send_signal(signal.SIGSTOP)
            eventually(lambda: _stands(process), what="a suspended server")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if process.poll() is None and children.exists():
            pids += [int(each) for each in children.read_text().split()]
        for pid in pids if number is not signal.SIGCONT else reversed(pids):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        if number is signal.SIGKILL:
            eventually(lambda: not any(runs(pid) for pid in pids[1:]), what="the end of the server's children")

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            self._signal_all(process, signal.SIGKILL)
            process.wait(60)


def _stands(process: subprocess.Popen[bytes]) -> bool:
    """Whether it was stopped, or has ended."""
    if process.poll() is not None:
        return True
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SkipTest("no unprivileged user for the server: add a user postgres")
