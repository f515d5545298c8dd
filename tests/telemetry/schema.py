"""The published JSON Schema of log records, and validation of whole logs."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "svc.log.1.json").read_text())
_VALIDATOR = Draft202012Validator(SCHEMA)
MAX_RECORD = 16 * 1024


def defects(record: object) -> list[str]:
    """List what is wrong with a record."""
    return [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(record)]


def log_defects(log: bytes, *, killed: bool = False) -> list[str]:
    """
    List what is wrong with what a process wrote to its standard output, line by line.

    Args:
        log: everything.
        killed: whether the process was killed, so that its last line may lack its end.

    Returns:
        Each line that is no record, with what is wrong with it.
    """
    *lines, rest = log.split(b"\n")
    found = [f"line {number}: {each}" for number, line in enumerate(lines, 1) for each in _line_defects(line)]
    if rest and not killed:
        found.append(f"the last line has no end: {rest[:200]!r}")
    return found


def judge_log(path: Path, begins: int, *, killed: bool = False) -> None:
    """
    Validate what a process wrote to its standard output.

    Args:
        path: the file that took it.
        begins: where in the file the output of this process begins.
        killed: whether the process was killed.

    Raises:
        AssertionError: there is something beside records of the published schema.
    """
    found = log_defects(path.read_bytes()[begins:], killed=killed) if path.exists() else []
    if found:
        raise AssertionError(f"{path} holds what is no log record: " + "; ".join(found[:5]))


def _line_defects(line: bytes) -> list[str]:
    if len(line) >= MAX_RECORD:
        return [f"{len(line)} octets"]
    try:
        record = json.loads(line.decode("ascii"), parse_constant=_refuse)
    except ValueError as error:
        return [f"{error}: {line[:200]!r}"]
    return [f"{each}: {line[:200]!r}" for each in defects(record)]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
