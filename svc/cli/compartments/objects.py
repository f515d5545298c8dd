"""Asks kubectl for the objects that a command is aimed at."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from svc.cli.compartments.command import Command
from svc.cli.compartments.kubectl import KubectlFailed, output
from svc.compartments.targets import Target
from svc.compartments.verbs import with_context


def fetch(command: Command, arguments: Sequence[str], flags: Sequence[str], data: bytes = b"") -> list[Target]:
    """
    Fetch objects by ``kubectl get``; where it fails, the process ends as kubectl did, with what that has said.

    Args:
        data: standard input.

    Raises:
        KubectlMissing: it cannot be started.
        KubectlFailed: it printed something else than objects.
    """
    # Preferences of the user for get are not meant for this.
    environ = {**command.environ, "KUBERC": "off"}
    words = ["get", *flags, "--output=json", "--", *arguments]
    ran = output(with_context(words, command.active), environ, data)
    if ran.returncode != 0:
        command.console().write_stderr(ran.stderr.decode("utf-8", "replace").rstrip("\n"))
        sys.exit(ran.returncode)
    if not ran.stdout.strip():
        return []
    try:
        found = json.loads(ran.stdout)
        return [Target.of(each) for each in found.get("items", [found])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubectlFailed(command="get", detail="it printed no objects") from error
