"""
Kubeconfigs, with the meaning that kubectl gives them: which files count, what their sum says, and what is refused.

``kubectl config view`` is not asked: it leaves a relative ``exec.command`` or ``tokenFile`` as it is and does not say
in which file it stands, so that what it prints has another meaning elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

import yaml

from svc.errors import printable
from svc.kube.errors import KubernetesError

#: Versions of the protocol of credential plugins.
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
#: The extension of a cluster that is meant for the plugin.
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
_MODES: Final = ("Never", "IfAvailable", "Always")
_LISTS: Final = {"clusters": "cluster", "users": "user", "contexts": "context"}
#: Beside letters, digits and those that are never quoted, what the name of a header may have (RFC 9110, 5.6.2).
_UNQUOTED: Final = "!#$&'*+^`|"
#: Of a cluster or a user, relative to the folder of the file.
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Dates stay texts."""

    yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True, repr=False)
class Plugin:
    """
    A credential plugin, ``exec`` of a user.

    Args:
        command: a name, or an absolute path.
        mode: ``Never``, ``IfAvailable`` or ``Always``: whether it may ask on the terminal.
        hint: how it is installed.
        wants_cluster: whether it is told which cluster it is for.
    """

    command: str
    version: str
    mode: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    wants_cluster: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """
    What a context says: where the API server is, and as whom.

    Args:
        server: a URL, without a slash at its end.
        authorities: the certificates of its CAs in PEM; empty for those of the system.
        verified: false where the certificate of the server is not looked at.
        server_name: the name in that certificate; empty for that of the URL.
        proxy: the URL of a proxy; empty for that of the environment.
        plugin_config: what the cluster has for the plugin.
        certificate: with its chain, in PEM; empty for none.
        key: of the certificate, in PEM.
        token_file: wins over ``token`` while it can be read.
        login: user name and password of HTTP Basic.
        impersonated: the headers that say as whom to act.
    """

    context: str
    server: str
    authorities: bytes = b""
    verified: bool = True
    server_name: str = ""
    proxy: str = ""
    plugin_config: Any = None
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""
    token_file: str = ""
    login: tuple[str, str] | None = None
    plugin: Plugin | None = None
    impersonated: tuple[tuple[str, str], ...] = ()


def read_access(paths: Iterable[str], context: str = "") -> Access | None:
    """
    Read kubeconfigs; what several of them name is that of the first.

    Args:
        paths: files; those that are absent are passed over.
        context: the current one where empty.

    Returns:
        None where nothing is in the files, and no context was named.

    Raises:
        KubernetesError: ``kubeconfig_unusable``.
    """
    merged: dict[str, Any] = {name: {} for name in _LISTS}
    current = ""
    paths = tuple(paths)
    for path in dict.fromkeys(paths):
        try:
            with open(path, "rb") as file:
                document = yaml.load(file, _Loader)  # noqa: S506 - a loader of plain data
            found = _entries(document, os.path.dirname(os.path.abspath(path)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise _unusable(f"{path}: {error}") from error
        for name in _LISTS:
            merged[name] = {**found[name], **merged[name]}
        current = current or _text(document or {}, "current-context")
    if not current and not context and not any(merged.values()):
        return None
    try:
        return _access(merged, context or current)
    except (OSError, ValueError) as error:
        raise _unusable(f"{os.pathsep.join(paths)}: {error}") from error


def _unusable(detail: str) -> KubernetesError:
    return KubernetesError("kubeconfig_unusable", detail=printable(" ".join(detail.split())))


def _entries(document: object, folder: str) -> dict[str, dict[str, Any]]:
    """The clusters, users and contexts of a file by their names, with absolute paths."""
    document = {} if document is None else _mapping(document, "the kubeconfig")
    identity = (document.get("apiVersion") or "v1", document.get("kind") or "Config")
    if identity != ("v1", "Config"):
        raise ValueError(f"it is {identity[0]} {identity[1]}, and no kubeconfig")
    found: dict[str, dict[str, Any]] = {}
    for name, inner in _LISTS.items():
        found[name] = {}
        for each in _list(document, name):
            key = _text(_mapping(each, name), "name")
            if key in found[name]:
                raise ValueError(f"{name} has {key} twice")
            content = _mapping(each.get(inner) or {}, f"{inner} {key}")
            found[name][key] = _with_absolute_paths(content, folder)
    return found


def _with_absolute_paths(content: dict[str, Any], folder: str) -> dict[str, Any]:
    content = dict(content)
    for key in _PATHS:
        if path := _text(content, key):
            content[key] = os.path.join(folder, path)
    plugin = content.get("exec")
    # A name alone is looked for in PATH.
    if isinstance(plugin, dict) and os.sep in _text(plugin, "command"):
        content["exec"] = {**plugin, "command": os.path.normpath(os.path.join(folder, plugin["command"]))}
    return content


def _access(merged: Mapping[str, Mapping[str, Any]], name: str) -> Access:
    if not name:
        raise ValueError("no context is named, and none is the current one")
    if name not in merged["contexts"]:
        raise ValueError(f"there is no context {name}")
    context = merged["contexts"][name]
    cluster_name, user_name = _text(context, "cluster"), _text(context, "user")
    if cluster_name not in merged["clusters"]:
        raise ValueError(f"the context {name} is of the cluster {cluster_name or '(none)'}, which is not there")
    if user_name and user_name not in merged["users"]:
        raise ValueError(f"the context {name} is of the user {user_name}, which is not there")
    about_cluster = _cluster(merged["clusters"][cluster_name], cluster_name)
    # kubectl gives nobody's credentials away without TLS.
    secured = user_name and about_cluster["server"].startswith("https://")
    about_user = _user(merged["users"][user_name], f"user {user_name}") if secured else {}
    return Access(context=name, **about_cluster, **about_user)


def _cluster(cluster: Mapping[str, Any], name: str) -> dict[str, Any]:
    where = f"cluster {name}"
    authorities = _content(cluster, "certificate-authority", where)
    verified = not _flag(cluster, "insecure-skip-tls-verify")
    if authorities and not verified:
        raise ValueError(f"{where}: insecure-skip-tls-verify and certificate-authority contradict each other")
    extensions = {_text(_mapping(each, where), "name"): each.get("extension") for each in _list(cluster, "extensions")}
    proxy = _text(cluster, "proxy-url")
    return {
        "server": _server(_text(cluster, "server"), where),
        "authorities": authorities,
        "verified": verified,
        "server_name": _text(cluster, "tls-server-name"),
        "proxy": proxy,
        "plugin_config": extensions.get(_EXEC_EXTENSION),
    }


def _server(text: str, where: str) -> str:
    split = urlsplit(text)
    if split.scheme not in ("http", "https") or not split.hostname or split.port == 0:
        raise ValueError(f"{where}: server is {text or 'missing'}, and no URL with https and a host")
    return split._replace(query="", fragment="").geturl().rstrip("/")


def _user(user: Mapping[str, Any], where: str) -> dict[str, Any]:
    certificate, key = _content(user, "client-certificate", where), _content(user, "client-key", where)
    if bool(certificate) != bool(key):
        raise ValueError(f"{where}: client-certificate and client-key belong together, and one is missing")
    token, token_file = _text(user, "token"), _text(user, "tokenFile")
    login = (_text(user, "username"), _text(user, "password"))
    if any(login) and (token or token_file):
        raise ValueError(f"{where}: there is a user name or password and a token, and only one may be there")
    provider = _mapping(user.get("auth-provider") or {}, where)
    plugin = _plugin(_mapping(user["exec"], where), where) if user.get("exec") is not None else None
    if plugin and provider:
        raise ValueError(f"{where}: there is exec and auth-provider, and only one may be there")
    if provider and not (token or token_file or any(login)):
        token = _id_token(provider, where)
    return {
        "certificate": certificate,
        "key": key,
        "token": _header(token, "token", where),
        "token_file": token_file,
        "login": login if any(login) else None,
        "plugin": plugin,
        "impersonated": tuple(_impersonated(user, where)),
    }


def _id_token(provider: Mapping[str, Any], where: str) -> str:
    """The token of ``auth-provider``; kubectl renews it, and writes the new refresh token into the file."""
    name = _text(provider, "name")
    if name != "oidc":
        raise ValueError(f"{where}: auth-provider {name} is not supported; use a credential plugin (exec)")
    token = _text(_mapping(provider.get("config") or {}, where), "id-token")
    try:
        payload = token.split(".")[1]
        ends = float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (ValueError, LookupError, TypeError):
        ends = 0.0
    if time.time() >= ends:
        raise ValueError(f"{where}: the id-token of auth-provider oidc has ended: kubectl get --raw /version renews it")
    return token


def _plugin(plugin: Mapping[str, Any], where: str) -> Plugin:
    where = f"{where}: exec"
    version, mode = _text(plugin, "apiVersion"), _text(plugin, "interactiveMode")
    if version not in EXEC_VERSIONS:
        raise ValueError(f"{where}: apiVersion is {version or 'missing'}, and not one of {', '.join(EXEC_VERSIONS)}")
    if not mode and version != EXEC_VERSIONS[0]:
        mode = "IfAvailable"
    if mode not in _MODES:
        raise ValueError(f"{where}: interactiveMode is {mode or 'missing'}, and not one of {', '.join(_MODES)}")
    command = _text(plugin, "command")
    if not command:
        raise ValueError(f"{where}: command is missing")
    variables = [_mapping(each, where) for each in _list(plugin, "env")]
    if not all(_text(each, "name") for each in variables):
        raise ValueError(f"{where}: a variable of env has no name")
    return Plugin(
        command,
        version,
        mode,
        _texts(plugin, "args"),
        {_text(each, "name"): _text(each, "value") for each in variables},
        _text(plugin, "installHint"),
        _flag(plugin, "provideClusterInfo"),
    )


def _impersonated(user: Mapping[str, Any], where: str) -> Iterable[tuple[str, str]]:
    extra = _mapping(user.get("as-user-extra") or {}, where)
    values = [("Impersonate-User", _text(user, "as")), ("Impersonate-Uid", _text(user, "as-uid"))]
    values += [("Impersonate-Group", each) for each in _texts(user, "as-groups")]
    for key in extra:
        values += [(f"Impersonate-Extra-{quote(key, safe=_UNQUOTED)}", each) for each in _texts(extra, key)]
    given = [(name, _header(value, name, where)) for name, value in values if value]
    if given and given[0][0] != "Impersonate-User":
        raise ValueError(f"{where}: as-uid, as-groups or as-user-extra is there, and as is not")
    return given


def _header(value: str, name: str, where: str) -> str:
    if any(ord(each) < 0x20 or ord(each) == 0x7F for each in value):
        raise ValueError(f"{where}: {name} has a line end or another control character")
    return value


def _content(entry: Mapping[str, Any], name: str, where: str) -> bytes:
    """What ``NAME-data`` holds, or the file ``NAME``."""
    data, path = _text(entry, f"{name}-data"), _text(entry, name)
    if data and path:
        raise ValueError(f"{where}: there is {name} and {name}-data, and only one may be there")
    if path:
        with open(path, "rb") as file:
            return file.read()
    try:
        return base64.b64decode("".join(data.splitlines()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{where}: {name}-data is no base64") from error


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where} is no mapping")
    return value


def _list(entry: Mapping[str, Any], name: str) -> list[Any]:
    value = entry.get(name)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value or []


def _flag(entry: Mapping[str, Any], name: str) -> bool:
    value = entry.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ValueError(f"{name} is neither true nor false")


def _text(entry: Mapping[str, Any], name: str) -> str:
    return _checked(entry.get(name), name)


def _texts(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(_checked(each, name) for each in _list(entry, name))


def _checked(value: object, name: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise ValueError(f"{name} is no text; quote it")
