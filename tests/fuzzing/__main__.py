"""
``python -m tests.fuzzing TARGET [FOLDER] [libFuzzer options]``: FOLDER takes the inputs that reach new branches.

``python -m tests.fuzzing --serve`` instruments the code once for several targets: each line of standard input is a JSON
list, of a file for the output and of arguments as above; the answer is a line with the exit status.
"""

from __future__ import annotations

import json
import os
import sys

import atheris

# Branches of these are what guides the search; the C code below them is not instrumented.
with atheris.instrument_imports(include=["svc", "ruamel.yaml"]):
    from tests.fuzzing.targets import TARGETS


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer ends the process: with status 0, or 77 and a file with the input where a target fails."""
    if arguments[1:] == ["--serve"]:
        serve(arguments[0])
        return
    if len(arguments) < 2 or arguments[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzzing {{{','.join(TARGETS)}}} [FOLDER] [libFuzzer options]")
    target = TARGETS[arguments[1]]
    atheris.Setup([arguments[0], *arguments[2:]], target.run, internal_libfuzzer=True)
    atheris.Fuzz()


def serve(program: str) -> None:
    """Fork a process for each line."""
    for line in sys.stdin:
        output, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            main([program, *arguments])
            os._exit(1)
        _process, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv)
