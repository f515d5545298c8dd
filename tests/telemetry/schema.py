"""The published JSON Schema of log records, and validation of whole logs."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

from svc.data import FOLDER

SCHEMA = json.loads((FOLDER / "schemas" / "svc.log.1.json").read_text())
_VALIDATOR = Draft202012Validator(SCHEMA)
MAX_RECORD = 16 * 1024


def defects(record: object) -> list[str]:
    """List the schema violations of a record."""
    return [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(record)]


def log_defects(log: bytes, *, killed: bool = False) -> list[str]:
    """
    List the lines of a process's standard output that are not valid log records.

    Args:
        log: the whole output.
        killed: whether the process was killed, so that its last line may be incomplete.

    Returns:
        Each invalid line with its number and its error.
    """
    *lines, rest = log.split(b"\n")
    found = [f"line {number}: {each}" for number, line in enumerate(lines, 1) for each in _line_defects(line)]
    if rest and not killed:
        found.append(f"the last line is incomplete: {rest[:200]!r}")
    return found


def assert_log_conforms(path: Path, begins: int, *, killed: bool = False) -> None:
    """
    Assert that the standard output of a process consists of log records of the published schema.

    Args:
        path: the file to which the output was redirected.
        begins: the offset in the file at which the output of this process begins.
        killed: whether the process was killed.

    Raises:
        AssertionError: a line is not a record of the published schema.
    """
    found = log_defects(path.read_bytes()[begins:], killed=killed) if path.exists() else []
    if found:
        raise AssertionError(f"{path} contains lines that are not log records: " + "; ".join(found[:5]))


def _line_defects(line: bytes) -> list[str]:
    if len(line) >= MAX_RECORD:
        return [f"{len(line)} octets"]
    try:
        record = json.loads(line.decode("ascii"), parse_constant=_refuse)
    except ValueError as error:
        return [f"{error}: {line[:200]!r}"]
    return [f"{each}: {line[:200]!r}" for each in defects(record)]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
