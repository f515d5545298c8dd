"""``svc describe``: kubectl, with the lines about the compartment highlighted on a terminal."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from svc.cli.compartments.command import Command
from svc.compartments.highlight import highlighted
from svc.compartments.verbs import with_context


def run(command: Command) -> NoReturn:
    """
    Become ``kubectl describe``, or run it on a terminal.

    Raises:
        KubectlMissing: it cannot be started.
        OutputFailed: standard output cannot be written.
    """
    if not os.isatty(1) or not command.console().colour:
        command.become(command.words)
    from svc.cli.compartments.kubectl import started
    from svc.cli.output import write_checked

    stdout = command.console().stdout
    child = started(with_context(command.words, command.active), command.environ)
    with child:
        for line in child.stdout or ():
            shown = highlighted(line.decode("utf-8", "surrogateescape"), command.active.compartment)
            write_checked(stdout, shown.encode("utf-8", "surrogateescape"))
    status = child.returncode
    sys.exit(status if status >= 0 else 128 - status)
