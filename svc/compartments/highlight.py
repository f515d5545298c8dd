"""Which lines of ``kubectl describe`` are about the compartment, and how a terminal shows them."""

from __future__ import annotations

import re
from typing import Final

from svc import naming
from svc.compartments.compartment import Compartment

_BOLD: Final = "\x1b[1m"
_BOLD_YELLOW: Final = "\x1b[1;33m"
_PLAIN: Final = "\x1b[0m"
_KEYS: Final = (naming.LABEL_COMPARTMENT, naming.ANNOTATION_LEVEL, naming.ANNOTATION_COMPARTMENT)
_LINE: Final = re.compile(
    r"(?P<before>(?:\s*(?:Labels|Annotations):)?\s+)"
    rf"(?P<key>{'|'.join(map(re.escape, _KEYS))})(?P<is>=|: )(?P<value>\S+)(?P<end>\s*)"
)


def highlighted(line: str, current: Compartment) -> str:
    """The line in bold if it has the label or an annotation of a compartment, in yellow too if that is another one."""
    found = _LINE.fullmatch(line)
    if found is None:
        return line
    ours = {naming.LABEL_COMPARTMENT: current.label, **current.annotations}
    key, value = found["key"], found["value"]
    colour = _BOLD if value.lower() == ours[key].lower() else _BOLD_YELLOW
    return f"{found['before']}{colour}{key}{found['is']}{value}{_PLAIN}{found['end']}"
