"""``python -m docs.generator``."""

from __future__ import annotations

import sys

from docs.generator.contents import stale, write_all


def main(arguments: list[str]) -> int:
    """
    Refresh the documentation, or say what is stale.

    Args:
        arguments: nothing, or ``--check``.

    Returns:
        The exit status.
    """
    if arguments == ["--check"]:
        found = stale()
        print("".join(f"stale: {name}\n" for name in found), end="")
        return 1 if found else 0
    if arguments:
        print("usage: python -m docs.generator [--check]", file=sys.stderr)
        return 2
    for name in write_all():
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
