"""What ``svc get`` adds to ``kubectl get``: the column with the compartment, and the filters by it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc import naming
from svc.compartments.argv import CommandLine
from svc.compartments.compartment import COUNTRY_PATTERN, NAME_PATTERN, SENSITIVITY_PATTERN, Compartment
from svc.compartments.errors import CompartmentError

_KEY: Final = naming.LABEL_COMPARTMENT
_LABEL: Final = re.compile(f"({COUNTRY_PATTERN})-({SENSITIVITY_PATTERN})-({NAME_PATTERN})")
#: The label as a path of custom columns has it.
_PATH: Final = _KEY.replace(".", r"\.")
_COLUMN: Final = f"COMPARTMENT:.metadata.labels.{_PATH}"
_CUSTOM: Final = "custom-columns"
#: Selects nothing.
NOTHING: Final = f"--selector={_KEY},!{_KEY}"


@dataclass(frozen=True, slots=True)
class Filter:
    """
    Which objects are shown, by the value of their label.

    Args:
        included: values of which one is needed; none for any value, and for no label.
        excluded: the value that is not shown; empty for none.
    """

    included: tuple[str, ...] = ()
    excluded: str = ""

    def __bool__(self) -> bool:
        return bool(self.included or self.excluded)

    def accepts(self, label: str) -> bool:
        """Whether an object is shown; ``label`` is empty where it has none."""
        return (not self.included or label in self.included) and not (self.excluded and label == self.excluded)

    @property
    def selector(self) -> str:
        """The same as a selector of labels."""
        match self.included:
            case ():
                parts = []
            case (one,):
                parts = [f"{_KEY}={one}"]
            case _:
                parts = [f"{_KEY} in ({','.join(self.included)})"]
        if self.excluded:
            parts.append(f"{_KEY}!={self.excluded}")
        return ",".join(parts)


def parse_filter(line: CommandLine, current: Compartment) -> Filter:
    """
    Read the filters of a command line.

    Raises:
        CompartmentError: a value is not acceptable, or two filters contradict each other.
    """
    current_wanted, excluded = line.is_set("current-compartment"), line.is_set("exclude-current-compartment")
    if current_wanted and excluded:
        raise CompartmentError("filter_contradiction")
    others = [_named(name, current) for name in line.values("compartment")]
    # --filter-compartment alone does not say which one.
    wanted = current_wanted or (line.is_set("filter-compartment") and not others and not excluded)
    included = [current.label] if wanted else []
    return Filter(tuple(dict.fromkeys([*included, *others])), current.label if excluded else "")


def _named(name: str, current: Compartment) -> str:
    """The label of a compartment that is named in full, or by its name in the country and sensitivity of ours."""
    parts = _LABEL.fullmatch(name)
    try:
        country, sensitivity, short = parts.groups() if parts else (current.country, current.sensitivity, name)
        return Compartment.parse(country, sensitivity, short).label
    except ValueError as error:
        raise CompartmentError("flag_value_invalid", flag="compartment", value=name, expected=error) from error


def column(line: CommandLine) -> list[str]:
    """The flags that add the column; none where the format has no columns, or has this one."""
    output, template = line.last("output"), line.last("template")
    if line.has("raw"):
        return []
    if output == "wide" or not (output or template):
        there = any(_KEY in value.split(",") for value in line.values("label-columns"))
        return [] if there else [f"--label-columns={_KEY}"]
    if output == _CUSTOM:
        flag, columns = "--template=", template
    else:
        flag, separator, columns = output.partition(f"{_CUSTOM}=")
        flag = f"--output={separator}" if separator and not flag else ""
    return [f"{flag}{columns},{_COLUMN}"] if flag and columns and _PATH not in columns else []


def names_objects(line: CommandLine) -> bool:
    """Whether the words name objects, beside or before a slash their kind."""
    arguments = line.arguments
    return len(arguments) > 1 or any("/" in word for word in arguments)


def selector_flag(line: CommandLine, wanted: Filter) -> str:
    """The flag for a filter together with the selector that was given."""
    return f"--selector={','.join(filter(None, (line.last('selector'), wanted.selector)))}"


def check_filterable(line: CommandLine) -> None:
    """
    Refuse filters where kubectl takes no selector, and the objects are not named by words.

    Raises:
        CompartmentError: ``filter_unusable`` or ``flag_unknown``.
    """
    for flag in ("raw", "filename", "kustomize"):
        if line.has(flag):
            raise CompartmentError("filter_unusable", flag=flag)
    if line.unknown:
        raise CompartmentError("flag_unknown", verb=line.words[0], flag=line.unknown[0])
