"""
The rows of the result: a figure of ours, that of a peer or a budget, their ratio, and what the ratio must be.

A ratio above 1 is always better for us: figures of which less is better are turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """
    One row.

    Args:
        metric: what was measured.
        peer: whose figure ours is compared with; ``budget`` for a figure that was set.
        ours: our figure, a median.
        theirs: the other one.
        unit: of both.
        ratio: above 1 where ours is better.
        must: what the ratio has to reach; None where nothing was set.
    """

    metric: str
    peer: str
    ours: float
    theirs: float
    unit: str
    ratio: float
    must: float | None

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches what it must."""
        return None if self.must is None else self.ratio >= self.must

    def as_json(self) -> dict[str, object]:
        """
        Write the row as JSON has it.

        Returns:
            All members, figures rounded to four digits that count.
        """
        members: dict[str, object] = asdict(self)
        for name in ("ours", "theirs", "ratio"):
            members[name] = float(f"{members[name]:.4g}")
        return {**members, "met": self.met}


def less_is_better(
    metric: str, peer: str, ours: Sequence[float], theirs: Sequence[float], unit: str, must: float | None
) -> Row:
    """
    Make a row of figures such as times and sizes.

    Args:
        metric: what was measured.
        peer: whose figures ours are compared with.
        ours: our figures, one of each round.
        theirs: the others.
        unit: of both.
        must: what the ratio has to reach.

    Returns:
        The row, of medians.
    """
    mine, other = median(ours), median(theirs)
    return Row(metric, peer, mine, other, unit, other / mine if mine > 0 else float("inf"), must)


def more_is_better(
    metric: str, peer: str, ours: Sequence[float], theirs: Sequence[float], unit: str, must: float | None
) -> Row:
    """
    Make a row of figures such as throughputs.

    Args:
        metric: what was measured.
        peer: whose figures ours are compared with.
        ours: our figures, one of each round.
        theirs: the others.
        unit: of both.
        must: what the ratio has to reach.

    Returns:
        The row, of medians.
    """
    mine, other = median(ours), median(theirs)
    return Row(metric, peer, mine, other, unit, mine / other, must)


def table(rows: Sequence[Row]) -> str:
    """
    Write rows for people.

    Args:
        rows: the rows.

    Returns:
        Lines of aligned columns.
    """
    head = ("metric", "peer", "ours", "theirs", "unit", "ratio", "must", "met")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    numbers = {2, 3, 5, 6}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    met = {None: "", True: "yes", False: "no"}[row.met]
    must = "" if row.must is None else f"{row.must:.2f}"
    return (
        row.metric,
        row.peer,
        f"{row.ours:.4g}",
        f"{row.theirs:.4g}",
        row.unit,
        f"{row.ratio:.2f}",
        must,
        met,
    )
