"""
``svc install`` on a terminal without a mode: asks for what a command line would say, prints that line, and asks once
whether to run it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from svc.cli.errors import Interrupted, UsageRefused
from svc.cli.globals import Invocation
from svc.cli.install.modes import Mode, check_flags
from svc.cli.install.registries import ENV_REGISTRY
from svc.errors import SvcError
from svc.identity.spiffeid import TrustDomain
from svc.install.registry.references import parse_registry
from svc.naming import ENV_DEPLOYMENT_PASSWORD, ENV_DEPLOYMENT_USERNAME

_MODES: Final = {"online": Mode.ONLINE, "download": Mode.DOWNLOAD, "offline": Mode.OFFLINE}
_WHICH: Final = """Install the platform on a Kubernetes cluster.
  online    the cluster reaches a registry of releases
  download  make a package here, to be carried to a cluster that reaches none
  offline   install from such a package, with a mirror that the cluster reaches"""
#: Where an upgrade is asked for, the trust domain is the one that there is.
_PROPOSED: Final = "prod.example.org"


def ask(given: Mapping[str, Any], invocation: Invocation) -> tuple[dict[str, Any], Mode]:
    """
    Ask; returns the flags with the mode among them, and the mode.

    Args:
        given: flags that were given already, which are not asked for.

    Raises:
        Interrupted: the user does not want to go on.
        UsageRefused: a flag that was given does not go with the mode.
    """
    flags: dict[str, Any] = {name: value for name, value in given.items() if value not in (None, "", (), False)}
    click.echo(_WHICH, err=True)
    mode = _MODES[_answer("Mode", "online", choices=tuple(_MODES))]
    flags[mode.value] = True
    if mode is Mode.OFFLINE:
        _fill(flags, "--file", "Package", "svc-release.tar")
        _fill(flags, "--mirror-registry", "Mirror, as host[:port][/prefix]", "", parse_registry)
        _ask_user(flags, "mirror", "", invocation)
    else:
        default = invocation.environ.get(ENV_REGISTRY, "")
        _fill(flags, "--qhx-registry", "Registry, as host[:port][/prefix]", default, parse_registry)
        _ask_user(flags, "qhx", invocation.environ.get(ENV_DEPLOYMENT_USERNAME, ""), invocation)
        _fill(flags, "--version", "Version", "latest")
    if mode is Mode.DOWNLOAD:
        _fill(flags, "--file", "File", "svc-release.tar")
    elif not flags.get("--upgrade") and click.confirm("Is it installed already, and to be upgraded?", err=True):
        flags["--upgrade"] = True
    elif not flags.get("--upgrade"):
        domain = _answer("Trust domain, which cannot be changed later", _PROPOSED, TrustDomain)
        flags["--set"] = (f"trustDomain={domain}",)
    check_flags(mode, flags)
    click.echo(f"The same without questions:\n  {command_line(flags)}", err=True)
    if not click.confirm("Run it?", err=True):
        raise Interrupted
    return flags, mode


def command_line(flags: Mapping[str, Any]) -> str:
    """Write flags as a command; a password is a variable."""
    words = ["svc", "install"]
    for name, value in flags.items():
        if value is True:
            words.append(name)
        elif name.endswith("-password"):
            variable = ENV_DEPLOYMENT_PASSWORD if name.startswith("--qhx") else "MIRROR_PASSWORD"
            words += [name, f'"${variable}"']
        else:
            texts = value if isinstance(value, tuple) else (value,)
            for text in [",".join(texts)] if name == "--platform" else texts:
                words += [name, shlex.quote(f"{text:g}s" if isinstance(text, float) else str(text))]
    return " ".join(words)


def _ask_user(flags: dict[str, Any], name: str, default: str, invocation: Invocation) -> None:
    user, password = f"--{name}-username", f"--{name}-password"
    if user in flags:
        return
    found = _answer("User, empty for the one of this machine's configuration", default, empty=True)
    if found:
        flags[user] = found
        if name != "qhx" or not invocation.environ.get(ENV_DEPLOYMENT_PASSWORD):
            flags[password] = click.prompt("Password", hide_input=True, err=True)


def _fill(
    flags: dict[str, Any], name: str, question: str, default: str, check: Callable[[str], object] | None = None
) -> None:
    if name not in flags:
        flags[name] = _answer(question, default, check)


def _answer(
    question: str,
    default: str,
    check: Callable[[str], object] | None = None,
    *,
    choices: tuple[str, ...] = (),
    empty: bool = False,
) -> str:
    """Ask until the answer is accepted."""
    while True:
        kind = click.Choice(choices) if choices else str
        shown = default if default or empty else None
        found = str(click.prompt(question, default=shown, type=kind, show_default=bool(default), err=True)).strip()
        try:
            if check is not None:
                check(found)
        except (SvcError, UsageRefused) as error:
            click.echo(f"{error}: {error.hint}" if error.hint else str(error), err=True)
        else:
            return found
