"""
``bin/bench --against COMMIT``: two trees measured in turn, and what has changed between them.

Each tree runs its own benchmark, in the environment of this checkout, in the order A B B A; a pair of neighbouring runs
gives one quotient of a row, so that a slow minute of the machine falls on both.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from svc.errors import SvcError

_CHECKOUT: Final = Path(__file__).resolve().parents[1]
#: A row by its metric and its peer, and the ratio that a run gave it.
Ratios = Mapping[tuple[str, str], float]


class TreeNotMeasured(SvcError):
    """{tree} cannot be measured: {detail}"""

    reason = "tree_not_measured"
    hint = "git rev-parse COMMIT shows whether the commit is there"


def compare(
    commit: str, pairs: int, arguments: Sequence[str], folder: Path, say: Callable[[str], None]
) -> list[tuple[Ratios, Ratios]]:
    """
    Measure both trees.

    Args:
        commit: the other tree.
        pairs: how often both are measured.
        arguments: of each run, such as ``--mqtt``.
        folder: for the other tree and the results.
        say: prints progress.

    Returns:
        The ratios of both in each pair: the other tree's, then this one's.

    Raises:
        TreeNotMeasured: there is no such commit, or a run failed.
    """
    found = []
    with _tree_of(commit, folder / "tree") as other:
        for number in range(pairs):
            ratios = {}
            for tree in (other, _CHECKOUT) if number % 2 == 0 else (_CHECKOUT, other):
                say(f"pair {number + 1} of {pairs}: {commit if tree == other else 'this tree'}")
                ratios[tree] = _measured(tree, arguments, folder / "rows.json")
            found.append((ratios[other], ratios[_CHECKOUT]))
    return found


@contextlib.contextmanager
def _tree_of(commit: str, folder: Path) -> Iterator[Path]:
    _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> None:
    ran = subprocess.run(["git", "-C", str(_CHECKOUT), *arguments], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise TreeNotMeasured(tree=arguments[-1], detail=ran.stderr.strip())


def _measured(tree: Path, arguments: Sequence[str], file: Path) -> Ratios:
    # Before the checkout of the environment, also in the processes that the run starts.
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "benchmarks.run", *arguments, "--json", str(file)]
    ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise TreeNotMeasured(tree=tree, detail=ran.stderr.strip()[-300:])
    return ratios_of(json.loads(file.read_text()))


def ratios_of(document: Mapping[str, Any]) -> Ratios:
    """Give the ratios of a file of ``bin/bench --json``; one above 1 is better for us."""
    return {(row["metric"], row["peer"]): row["ratio"] for row in document["rows"]}


def changes(pairs: Sequence[tuple[Ratios, Ratios]]) -> str:
    """
    Write what has changed, the greatest loss first.

    Args:
        pairs: the ratios of the other tree and of this one.

    Returns:
        A line for each row that both trees have: the median ratios, and how many times better this tree is, as the
        median, the least and the greatest of the pairs. A row whose least and greatest lie on one side of 1 is marked.
    """
    rows = []
    for key in pairs[0][0]:
        if any(key not in ratios or not ratios[key] for pair in pairs for ratios in pair):
            continue
        quotients = sorted(now[key] / before[key] for before, now in pairs)
        mark = "*" if quotients[0] > 1 or quotients[-1] < 1 else ""
        before, now = (median(pair[side][key] for pair in pairs) for side in (0, 1))
        rows.append((median(quotients), before, now, quotients[0], quotients[-1], mark, *key))
    lines = [f"{'before':>8} {'now':>8} {'now/before':>10} {'least':>7} {'most':>7}    metric, against"]
    for middle, before, now, least, most, mark, metric, peer in sorted(rows):
        lines.append(f"{before:8.3f} {now:8.3f} {middle:10.2f} {least:7.2f} {most:7.2f} {mark:2} {metric}, {peer}")
    return "\n".join(lines)
