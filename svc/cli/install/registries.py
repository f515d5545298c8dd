"""Work with a registry that flags, variables and files of this machine describe, in the reactor of this process."""

from __future__ import annotations

import getpass
import random
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from svc.cli.errors import UsageRefused
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.install.modes import RegistryFlags
from svc.install.registry.client import RegistryClient
from svc.install.registry.connections import read_roots
from svc.install.registry.credentials import Credentials, GivenBy, given_credentials
from svc.install.registry.discovery import find_credentials
from svc.install.registry.references import Registry, parse_registry

_T = TypeVar("_T")
ENV_REGISTRY: Final = "SVC_REGISTRY"
_MAX_PASSWORD: Final = 4096


class Access(NamedTuple):
    """A registry that is reached; ``credentials`` are those that are sent to it."""

    registry: Registry
    client: RegistryClient
    credentials: Credentials | None


def registry_address(flags: RegistryFlags, invocation: Invocation) -> Registry:
    """
    Return the registry of releases.

    Raises:
        UsageRefused: none is named.
        RegistryError: it is none.
    """
    text = flags.address or invocation.environ.get(ENV_REGISTRY, "")
    if not text:
        raise UsageRefused(
            f"no registry is named, and none is built in: neither by --qhx-registry nor by {ENV_REGISTRY}",
            "name the registry that your vendor gave you: -R HOST[:PORT][/PREFIX]",
        )
    return parse_registry(text)


def with_password(flags: RegistryFlags, by: GivenBy, invocation: Invocation) -> RegistryFlags:
    """
    Read the password of ``-`` from standard input, and ask for one that is missing where a terminal is there.

    Raises:
        UsageRefused: standard input has none.
    """
    if flags.password == "-":  # noqa: S105 - a word for standard input
        stdin = invocation.stdin
        read = b"" if stdin is None else stdin.readline(_MAX_PASSWORD)
        if not read.strip(b"\r\n"):
            raise UsageRefused(f"standard input has no password for {by.password_flag} -", "give it as one line")
        return replace(flags, password=read.strip(b"\r\n").decode("utf-8", "surrogateescape"))
    if flags.password:
        invocation.console.warn(
            f"other users of this machine can see {by.password_flag}: give - and write it to standard input"
        )
    missing = flags.username and not flags.password and not invocation.environ.get(by.password_variable or "\0")
    if missing and sys.stdin is not None and sys.stdin.isatty():
        return replace(flags, password=getpass.getpass(f"Password of {flags.username}: "))
    return flags


def work_with(
    work: Callable[[Access], Coroutine[Any, Any, _T]],
    registry: Registry,
    flags: RegistryFlags,
    by: GivenBy,
    options: GlobalOptions,
    invocation: Invocation,
) -> _T:
    """
    Run something with a registry.

    Raises:
        RegistryError: the registry cannot be used.
    """
    from twisted.internet import reactor

    from svc.cli.logs import begin_logging
    from svc.cli.reactor import run_until_done

    begin_logging(options, invocation.console)
    environment, clients = invocation.environ, []
    roots = read_roots(Path(flags.ca_file), registry.host) if flags.ca_file else ()
    given = given_credentials(registry.host, by, flags.username, flags.password, environment)

    async def run() -> _T:
        credentials = given or await find_credentials(reactor, registry.host, registry.repository("svc"), environment)
        client = RegistryClient(
            reactor,
            registry.host,
            now=invocation.now,
            random=random.random,
            credentials=credentials,
            plain=flags.insecure,
            roots=roots,
            environment=environment,
        )
        clients.append(client)
        return await work(Access(registry, client, credentials))

    async def close() -> None:
        for client in clients:
            await client.close()

    return run_until_done(reactor, lambda: Deferred.fromCoroutine(run()), close)


def for_nodes(credentials: Credentials | None) -> tuple[str, str] | None:
    """Return user and password with which nodes pull; None where there are none, or a token that ends."""
    if credentials is None or not credentials.password:
        return None
    return credentials.username, credentials.password
