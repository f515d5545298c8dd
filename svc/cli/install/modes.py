"""Which mode of ``svc install`` the flags select, and which flags it takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from svc.cli.errors import UsageRefused

_WIZARD: Final = "the wizard needs a terminal"
_DURATION: Final = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6}(?:\.\d{1,3})?)s)?")
#: Helm waits at least a second, and at most a day.
_LONGEST: Final = 86400.0


class Mode(Enum):
    """What is to be done; the value is the flag."""

    ONLINE = "--online"
    DOWNLOAD = "--download"
    OFFLINE = "--offline-install"


_CLUSTER: Final = frozenset({Mode.ONLINE, Mode.OFFLINE})
_REGISTRY: Final = frozenset({Mode.ONLINE, Mode.DOWNLOAD})
_OFFLINE: Final = frozenset({Mode.OFFLINE})
#: The modes that take a flag; every mode takes those that are not named.
TAKEN_BY: Final[Mapping[str, frozenset[Mode]]] = {
    "--file": frozenset({Mode.DOWNLOAD, Mode.OFFLINE}),
    "--kubeconfig": _CLUSTER,
    "--context": _CLUSTER,
    "--upgrade": _CLUSTER,
    "--timeout": _CLUSTER,
    "--kubernetes-variant": _CLUSTER,
    "--set": _CLUSTER,
    "--set-string": _CLUSTER,
    "--values": _CLUSTER,
    "--qhx-registry": _REGISTRY,
    "--qhx-username": _REGISTRY,
    "--qhx-password": _REGISTRY,
    "--qhx-ca-file": _REGISTRY,
    "--qhx-insecure": _REGISTRY,
    "--mirror-registry": _OFFLINE,
    "--mirror-username": _OFFLINE,
    "--mirror-password": _OFFLINE,
    "--mirror-ca-file": _OFFLINE,
    "--mirror-insecure": _OFFLINE,
}


@dataclass(frozen=True, slots=True)
class RegistryFlags:
    """
    What the flags say of a registry.

    Args:
        address: ``host[:port][/prefix]``.
        username: empty where it is not given.
        password: ``-`` where it is read from standard input; empty where it is not given.
        ca_file: a path; empty for the authorities of the system.
        insecure: whether it is reached by HTTP.
    """

    address: str
    username: str = ""
    password: str = ""
    ca_file: str = ""
    insecure: bool = False


def select(values: Mapping[str, Any], *, terminal: bool) -> Mode | None:
    """
    Return the mode; None for the wizard.

    Args:
        values: by the long names of the flags, those that were given.
        terminal: whether questions can be asked.

    Raises:
        UsageRefused: several modes, none where nobody can be asked, or a flag that the mode does not take.
    """
    chosen = [mode for mode in Mode if values.get(mode.value)]
    if len(chosen) > 1:
        raise UsageRefused(f"{chosen[0].value} and {chosen[1].value} cannot be used together", "choose one of them")
    if not chosen:
        given = [flag for flag in ("--file", "--set", "--set-string", "--values", "--dry-run") if values.get(flag)]
        if terminal and not given:
            return None
        why = f"{given[0]} is given" if terminal else _WIZARD
        modes = "choose one of --online, --download or --offline-install"
        raise UsageRefused(f"there is no mode, and no questions are asked: {why}", modes)
    check_flags(chosen[0], values)
    return chosen[0]


def check_flags(mode: Mode, values: Mapping[str, Any]) -> None:
    """
    Check that a mode takes the flags, and has those that it needs.

    Raises:
        UsageRefused: it does not; names both.
    """
    for flag, modes in TAKEN_BY.items():
        if values.get(flag) and mode not in modes:
            takers = " and ".join(each.value for each in Mode if each in modes)
            raise UsageRefused(f"{mode.value} does not take {flag}", f"it is for {takers}")
    needed = ("--file", "--mirror-registry") if mode is Mode.OFFLINE else ()
    for flag in needed:
        if not values.get(flag):
            raise UsageRefused(f"{mode.value} needs {flag}", '"svc install --help" shows what it stands for')
    for name in ("qhx", "mirror"):
        if values.get(f"--{name}-ca-file") and values.get(f"--{name}-insecure"):
            raise UsageRefused(
                f"--{name}-ca-file and --{name}-insecure cannot be used together",
                "the first is for HTTPS, and the second for HTTP",
            )
        if values.get(f"--{name}-password") and not values.get(f"--{name}-username"):
            raise UsageRefused(f"--{name}-password needs --{name}-username", "name the user that it belongs to")


def registry_flags(values: Mapping[str, Any], name: str) -> RegistryFlags:
    """Return what the flags say of a registry: ``qhx`` or ``mirror``."""
    text = {each: values.get(f"--{name}-{each}") or "" for each in ("registry", "username", "password", "ca-file")}
    insecure = bool(values.get(f"--{name}-insecure"))
    return RegistryFlags(text["registry"], text["username"], text["password"], text["ca-file"], insecure)


def parse_timeout(text: str) -> float:
    """
    Parse a duration as Go writes it, such as ``10m0s`` or ``90s``, into seconds.

    Raises:
        ValueError: it is none, or not between a second and a day.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    seconds = int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 + float(match[3] or 0)
    if not 1 <= seconds <= _LONGEST:
        raise ValueError(text)
    return seconds


def parse_platforms(text: str) -> tuple[str, ...]:
    """
    Parse platforms, such as ``linux/amd64,linux/arm64``.

    Raises:
        ValueError: one of them is none, or stands there twice.
    """
    platforms = tuple(text.split(","))
    if len(set(platforms)) != len(platforms) or not all(
        re.fullmatch(r"[a-z0-9]+/[a-z0-9]+", each) for each in platforms
    ):
        raise ValueError(text)
    return platforms
