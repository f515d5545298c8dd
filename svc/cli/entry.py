"""
Where ``svc`` begins: a command of kubectl is passed on before the command line with all its libraries is loaded.

What that refuses is run again by :mod:`svc.cli.main`, which reports it.
"""

from __future__ import annotations

import contextlib
import os
import sys

from svc import naming
from svc.compartments.verbs import VERBS, WRAPPED


def main() -> int:
    """Run one command with the words of the process."""
    words = sys.argv[1:]
    if words and words[0] in VERBS - WRAPPED and not os.environ.get(naming.ENV_DEBUG):
        _pass_on(words)
    from svc.cli.main import main as run

    return run()


def _pass_on(words: list[str]) -> None:
    from svc.cli.compartments import passthrough

    with contextlib.suppress(Exception):
        passthrough.run(words, os.environ, passthrough.execute, _warn)


def _warn(text: str) -> None:
    from svc.cli.output import Console, standard_streams

    Console(*standard_streams(), os.environ).warn(text)


if __name__ == "__main__":
    sys.exit(main())
