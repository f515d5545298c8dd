"""
The configuration as each kubectl command reads it: without a parser of YAML and without a validator.

These two cost more time than all the rest of such a command. So the configuration is also kept as JSON in a file beside
the YAML, together with the text that it was made of; while the texts are equal it is what the YAML says, and otherwise
the YAML is read by the one reader that there is, and the file is made anew. A second reader, of a part of YAML, would
be another rule on what the file may contain, and more code. Who can write this file can write the YAML as well.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from svc import __version__, naming
from svc.compartments.compartment import Compartment
from svc.compartments.config import VARIABLES, AuditLog, Config, Context, at_home
from svc.folders import is_absent

#: Beside the file, behind its name.
SUFFIX: Final = ".compiled"
_MAX_FILE: Final = 8 * 1024 * 1024


def load(environ: Mapping[str, str]) -> Config | None:
    """
    Read the configuration; None where there is neither a file nor a variable of a compartment.

    Raises:
        CommandFailed, ConfigUnreadable: as :meth:`svc.cli.compartments.configfile.ConfigFile.read`.
    """
    path = at_home(naming.DEFAULT_CONTEXTS, environ)
    try:
        source = _read(path)
    except (OSError, ValueError):
        if not is_absent(path):
            return _read_yaml(environ)
        # What the variables name is in force like a compartment of the file.
        return Config(path) if any(environ.get(name) for name in VARIABLES.values()) else None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads(_read(path + SUFFIX))
        if (kept["version"], kept["source"]) == (__version__, source):
            return _config(path, kept["config"])
    config = _read_yaml(environ)
    _keep(config, source)
    return config


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(_MAX_FILE).decode()


def _read_yaml(environ: Mapping[str, str]) -> Config:
    from svc.cli.compartments.configfile import ConfigFile

    return ConfigFile(environ).read()[0]


def _keep(config: Config, source: str) -> None:
    """Write the file; where that is not possible, each command reads the YAML."""
    from dataclasses import asdict

    from svc.workload.files import write_atomically

    kept = {"version": __version__, "source": source, "config": asdict(config)}
    with contextlib.suppress(OSError):
        write_atomically(config.path + SUFFIX, json.dumps(kept).encode(), mode=0o600)


def _config(path: str, kept: Mapping[str, Any]) -> Config:
    contexts = {
        name: Context(Compartment(**each["compartment"]), each["kube_context"], each["namespace"], each["impersonate"])
        for name, each in kept["contexts"].items()
    }
    others = {
        "default_groups": tuple(kept["default_groups"]),
        "audit": AuditLog(**kept["audit"]),
        "templates": {kind: tuple(places) for kind, places in kept["templates"].items()},
    }
    return Config(**{**kept, **others, "path": path, "contexts": contexts})
