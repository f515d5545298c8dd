"""
The credentials for a registry: those that were given, and those in the configuration files of container tools.

The format is that of ``~/.docker/config.json``, which ``containers-auth.json(5)`` shares.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from svc import naming, strictjson
from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Host

#: The user name that says that the secret is an identity token.
TOKEN_USER: Final = "<token>"  # noqa: S105 - a user name
_HELPER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_MAX_CONFIG: Final = 1024 * 1024
#: Docker keeps the credentials of its own registry under this key.
_DOCKER_HUB: Final = "https://index.docker.io/v1/"
_DOCKER_HUB_NAMES: Final = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """
    How a registry knows who asks.

    Attributes:
        username: empty with a token.
        password: empty with a token.
        identity_token: a refresh token of OAuth 2.0; empty for none.
        registry_token: what is sent as it is; empty for none.
        source: where they are from, for people.
    """

    username: str
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)
    source: str = ""

    def __str__(self) -> str:
        return f"as {self.username} (from {self.source})" if self.username else f"with a token (from {self.source})"


@dataclass(frozen=True, slots=True)
class Helper:
    """
    A program that keeps credentials.

    Attributes:
        program: its name, ``docker-credential-...``.
        server: the key to ask it for.
    """

    program: str
    server: str


@dataclass(frozen=True, slots=True)
class GivenBy:
    """Where the user gives the credentials of one registry: two flags, and two variables or empty names."""

    username_flag: str
    password_flag: str
    username_variable: str = ""
    password_variable: str = ""


#: Of the registry of releases.
REGISTRY: Final = GivenBy(
    "--qhx-username", "--qhx-password", naming.ENV_DEPLOYMENT_USERNAME, naming.ENV_DEPLOYMENT_PASSWORD
)
#: Of the mirror; the customer's key for the registry of releases is never sent to it.
MIRROR: Final = GivenBy("--mirror-username", "--mirror-password")


def given_credentials(
    host: Host, by: GivenBy, username: str, password: str, environment: Mapping[str, str]
) -> Credentials | None:
    """
    Return the credentials that the user has given, by flags before variables, each of the two by itself.

    Args:
        host: of the registry.
        by: the names of flags and variables.
        username: the value of its flag; empty for none.
        password: the value of its flag; empty for none.
        environment: the variables.

    Returns:
        None where neither is given.

    Raises:
        RegistryError: one of the two is missing.
    """
    found_username = username or environment.get(by.username_variable, "")
    found_password = password or environment.get(by.password_variable, "")
    if not found_username and not found_password:
        return None
    if not found_username:
        names = " or ".join(filter(None, (by.username_flag, by.username_variable)))
        raise RegistryError("registry_username_missing", registry=host, names=names)
    if not found_password:
        names = " or ".join(filter(None, (by.password_flag, by.password_variable)))
        raise RegistryError("registry_password_missing", registry=host, names=names)
    return Credentials(found_username, found_password, source=by.username_flag if username else by.username_variable)


def configured_credentials(data: bytes, path: str, host: Host, repository: str) -> Credentials | Helper | None:
    """
    Find the credentials for a repository in a configuration file.

    In this order: the helper of the host in ``credHelpers``; the entry of ``auths`` with the longest matching prefix
    of ``host/repository``; the helper ``credsStore`` for all hosts.

    Args:
        data: the content of the file.
        path: its path, for errors.
        host: of the registry.
        repository: its name, or a prefix of names.

    Returns:
        The credentials, the helper to ask, or None.

    Raises:
        RegistryError: the file has another form.
    """

    def unreadable(defect: str) -> RegistryError:
        return RegistryError("registry_credentials_unreadable", registry=host, path=path, defect=defect)

    try:
        document = strictjson.loads(data, max_bytes=_MAX_CONFIG, fractions=True)
    except strictjson.JsonRefused as error:
        raise unreadable(error.defect) from None
    if not isinstance(document, dict):
        raise unreadable("it is not a JSON object")
    helpers, auths, store = (document.get(name) or {} for name in ("credHelpers", "auths", "credsStore"))
    if not isinstance(helpers, dict) or not isinstance(auths, dict):
        raise unreadable("credHelpers and auths must be objects")
    for key, name in helpers.items():
        if _normalized(key) == _normalized(str(host)) and name:
            return _helper(name, key, unreadable)
    entries = {_normalized(key): entry for key, entry in auths.items()}
    for key in _prefixes(host, repository):
        entry = entries.get(key)
        if isinstance(entry, dict) and (found := _entry(entry, path, unreadable)) is not None:
            return found
    if store:
        server = _DOCKER_HUB if host.name in _DOCKER_HUB_NAMES else str(host)
        return _helper(store, server, unreadable)
    return None


def helped_credentials(output: bytes, helper: Helper) -> Credentials | None:
    """
    Read what a helper wrote.

    Returns:
        None where it is not what a helper writes.
    """
    try:
        document = strictjson.loads(output)
    except strictjson.JsonRefused:
        return None
    if not isinstance(document, dict):
        return None
    username, secret = document.get("Username"), document.get("Secret")
    if not isinstance(username, str) or not isinstance(secret, str) or not secret:
        return None
    if username == TOKEN_USER:
        return Credentials("", "", identity_token=secret, source=helper.program)
    return Credentials(username, secret, source=helper.program)


def _helper(name: Any, server: str, unreadable: Any) -> Helper:
    if not isinstance(name, str) or _HELPER.match(name) is None:
        raise unreadable("the name of a credential helper has letters, digits and . _ - alone")
    return Helper(f"docker-credential-{name}", server)


def _normalized(key: str) -> str:
    """Return a key of ``auths`` as host and path; older tools write URLs."""
    key = key.removeprefix("https://").removeprefix("http://")
    for suffix in ("/", "/v1", "/v2"):
        key = key.removesuffix(suffix)
    host, slash, path = key.partition("/")
    host = "docker.io" if host in _DOCKER_HUB_NAMES else host.lower()
    return f"{host}{slash}{path}"


def _prefixes(host: Host, repository: str) -> list[str]:
    """Return ``host/a/b``, ``host/a`` and ``host``."""
    parts = [_normalized(str(host)), *filter(None, repository.split("/"))]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _entry(entry: dict[str, Any], path: str, unreadable: Any) -> Credentials | None:
    """Read an entry of ``auths``; an empty one only says that a helper has them."""
    values = {
        name: entry.get(name) or "" for name in ("auth", "username", "password", "identitytoken", "registrytoken")
    }
    if not all(isinstance(value, str) for value in values.values()):
        raise unreadable("the values of an entry of auths must be texts")
    username, password = values["username"], values["password"]
    if values["auth"]:
        try:
            decoded = base64.b64decode(values["auth"], validate=True).decode().rstrip("\x00")
        except (binascii.Error, UnicodeDecodeError):
            raise unreadable("auth of an entry of auths is not base64 of user:password") from None
        username, colon, password = decoded.partition(":")
        if not colon:
            raise unreadable("auth of an entry of auths is not base64 of user:password")
    if values["identitytoken"] or values["registrytoken"]:
        return Credentials("", "", values["identitytoken"], values["registrytoken"], source=path)
    if username and password:
        return Credentials(username, password, source=path)
    return None
