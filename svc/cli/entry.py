"""
Where ``svc`` begins: a command of kubectl is passed on before the command line with all its libraries is loaded.

What that refuses is reported by :mod:`svc.cli.main`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from svc import naming
from svc.compartments.verbs import VERBS

if TYPE_CHECKING:
    from svc.cli.output import Console


def main() -> int:
    """Run one command with the words of the process."""
    words = sys.argv[1:]
    refused = None
    if words and words[0] in VERBS and not os.environ.get(naming.ENV_DEBUG):
        refused = _pass_on(words)
    from svc.cli.main import main as run

    return run(refused=refused)


def _pass_on(words: list[str]) -> BaseException:
    from svc.cli.compartments import passthrough

    try:
        passthrough.run(words, os.environ, passthrough.execute, _console)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - all are reported by main
        return error


def _console() -> Console:
    from svc.cli.output import Console, standard_streams

    return Console(*standard_streams(), os.environ)


if __name__ == "__main__":
    sys.exit(main())
