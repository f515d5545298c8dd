"""``python -m tests.fuzzing TARGET [FOLDER] [libFuzzer options]``: FOLDER takes the inputs that reach new branches."""

from __future__ import annotations

import sys

import atheris

# Branches of these are what guides the search; the C code below them is not instrumented.
with atheris.instrument_imports(include=["svc", "ruamel.yaml"]):
    from tests.fuzzing.targets import TARGETS


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer ends the process: with status 0, or 77 and a file with the input where a target fails."""
    if len(arguments) < 2 or arguments[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzzing {{{','.join(TARGETS)}}} [FOLDER] [libFuzzer options]")
    target = TARGETS[arguments[1]]
    atheris.Setup([arguments[0], *arguments[2:]], target.run, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
