"""
As whom kubectl works: as the user itself, in the groups of the compartment, where the API server permits that.

What it has said is kept for some minutes, for each Kubernetes context, kubeconfig and set of groups: a command makes no
request of its own for this.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any, Final

from svc import naming
from svc.compartments.config import Active, at_home
from svc.compartments.errors import CompartmentError

#: For how many seconds an answer counts, and that there was none.
LIFETIME: Final = 300
_FAILED_LIFETIME: Final = 60
#: How many answers are kept.
MAX_KEPT: Final = 64
_FILE: Final = "impersonation.json"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Identity:
    """
    What the API server has said about the user.

    Args:
        user: the name; empty where it has not answered.
        lost: groups of the user that are none of those that are wanted.
        denied: what the user may not impersonate, such as ``groups svc:country:de``.
    """

    user: str
    lost: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()

    def obstacle(self, impersonate: str) -> str:
        """Why nobody is impersonated by ``auto`` or ``always``; empty where the user is."""
        if not self.user:
            return "the API server has not named the user"
        if self.lost and impersonate == "auto":
            return f"defaultUserGroups does not have {', '.join(self.lost)}, which would be lost"
        return f"{self.user} may not impersonate {', '.join(self.denied)}" if self.denied else ""


def impersonated(active: Active, environ: Mapping[str, str]) -> Active:
    """
    Add the flags of kubectl by which it works in the groups of the compartment.

    Args:
        environ: as kubectl gets it.

    Raises:
        CompartmentError: ``impersonation_denied``.
        KubectlMissing, KubectlFailed: the user has to be impersonated, and is not known.
    """
    if active.impersonate == "never":
        return active
    always = active.impersonate == "always"
    found = _kept(_path(environ), _key(active, environ))
    if found is None or (always and found.obstacle("always")):
        found = identify(active, environ) if always else _identified(active, environ)
    obstacle = found.obstacle(active.impersonate)
    if obstacle and always:
        raise CompartmentError("impersonation_denied", obstacle=obstacle, name=active.name)
    if obstacle:
        return active
    return replace(active, identity=(f"--as={found.user}", *(f"--as-group={group}" for group in active.groups)))


def identify(active: Active, environ: Mapping[str, str]) -> Identity:
    """
    Ask the API server who the user is, and unless nobody is to be impersonated, what it permits; keep the answer.

    Raises:
        KubectlMissing, KubectlFailed: there is no answer.
    """
    found = _asked(active, environ)
    _keep(_path(environ), _key(active, environ), found, LIFETIME)
    return found


def _asked(active: Active, environ: Mapping[str, str]) -> Identity:
    from svc.cli.compartments.kubectl import REQUEST_TIMEOUT, KubectlFailed, ask

    flags = [f"--context={active.kube_context}"] if active.kube_context else []
    flags.append(f"--request-timeout={REQUEST_TIMEOUT}s")
    try:
        whoami = json.loads(ask([*flags, "auth", "whoami", "-o", "json"], environ))["status"]["userInfo"]
        found = Identity(str(whoami["username"]), tuple(sorted(set(whoami.get("groups") or ()) - set(active.groups))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubectlFailed(command="auth whoami", detail="it printed no user") from error
    if active.impersonate == "never" or found.obstacle(active.impersonate):
        return found
    return replace(found, denied=tuple(_denied(found.user, active, flags, environ)))


def _denied(user: str, active: Active, flags: list[str], environ: Mapping[str, str]) -> Iterator[str]:
    """What the user may not impersonate, by one run of kubectl; all of it where that fails."""
    from svc.cli.compartments.kubectl import KubectlFailed, ask

    wanted = [_user_attributes(user), *({"resource": "groups", "name": group} for group in active.groups)]
    reviews = "\n".join(json.dumps(_review(each)) for each in wanted)
    create = [*flags, "create", "--filename=-", "--validate=false", "-o", "jsonpath={.status.allowed} "]
    allowed = []
    with contextlib.suppress(KubectlFailed):
        allowed = ask(create, {**environ, "KUBERC": "off"}, reviews.encode()).split()
    for each, answer in zip_longest(wanted, allowed[: len(wanted)]):
        if answer != "true":
            yield f"{each['resource']} {each['name']}"


def _user_attributes(user: str) -> dict[str, str]:
    """What the API server asks for when a user is impersonated; service accounts are a resource of their own."""
    namespace, _colon, name = user.removeprefix(_ACCOUNT).partition(":")
    if user.startswith(_ACCOUNT):
        return {"resource": "serviceaccounts", "namespace": namespace, "name": name}
    return {"resource": "users", "name": user}


def _review(attributes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "impersonate", **attributes}},
    }


def _identified(active: Active, environ: Mapping[str, str]) -> Identity:
    """As :func:`identify`; that there is no answer is kept as well, for a shorter time."""
    from svc.cli.compartments.kubectl import KubectlFailed, KubectlMissing

    try:
        return identify(active, environ)
    except (KubectlMissing, KubectlFailed):
        found = Identity("")
        _keep(_path(environ), _key(active, environ), found, _FAILED_LIFETIME)
        return found


def _path(environ: Mapping[str, str]) -> str:
    return os.path.join(os.path.dirname(at_home(naming.DEFAULT_CONTEXTS, environ)), _FILE)


def _key(active: Active, environ: Mapping[str, str]) -> str:
    """Everything that an answer depends on; a kubeconfig that was changed may have other credentials."""
    paths = (active.kubeconfig or at_home("~/.kube/config", environ)).split(os.path.pathsep)
    changed = []
    for path in paths:
        with contextlib.suppress(OSError):
            changed.append(str(os.stat(path).st_mtime_ns))
    return "\n".join([active.impersonate, active.kube_context, *paths, *changed, *active.groups])


def _entries(path: str) -> dict[str, Any]:
    """What is kept and still counts; nothing where the file is no such file."""
    now = time.time()
    try:
        with open(path, "rb") as file:
            return {key: each for key, each in json.load(file).items() if now < each["until"] <= now + LIFETIME}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _kept(path: str, key: str) -> Identity | None:
    try:
        kept = _entries(path)[key]
        return Identity(str(kept["user"]), tuple(kept["lost"]), tuple(kept["denied"]))
    except (KeyError, TypeError):
        return None


def _keep(path: str, key: str, found: Identity, lifetime: float) -> None:
    """Keep an answer beside the latest others; where that is not possible, each command asks."""
    from svc.workload.files import write_atomically

    others = {other: each for other, each in _entries(path).items() if other != key}
    latest = sorted(others.items(), key=lambda item: float(item[1]["until"]))[max(0, len(others) + 1 - MAX_KEPT) :]
    kept = {**dict(latest), key: {"until": time.time() + lifetime, **asdict(found)}}
    with contextlib.suppress(OSError):
        write_atomically(path, json.dumps(kept).encode(), mode=0o600)
