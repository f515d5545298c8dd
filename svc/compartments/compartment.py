"""
A compartment: country, sensitivity and the name of the compartment, and what is derived of them.

Letters are compared without regard to case. Here all three are in upper case, as in the label; names of contexts,
annotations and groups are in lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc import naming

SENSITIVITIES: Final = ("U", "C", "S", "TS")
#: Characters of a value of a label (Kubernetes, "Labels and Selectors").
MAX_LABEL: Final = 63
MAX_COUNTRY: Final = 8
COUNTRY_PATTERN: Final = rf"[A-Za-z0-9]{{1,{MAX_COUNTRY}}}"
SENSITIVITY_PATTERN: Final = "[Uu]|[Cc]|[Tt]?[Ss]"
NAME_PATTERN: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
#: What is accepted for each part, in the order of the label.
EXPECTED: Final = {
    "country": f"a code of up to {MAX_COUNTRY} letters and digits, such as DE",
    "sensitivity": f"one of {', '.join(SENSITIVITIES)}",
    "compartment": "letters, digits and inner - _ . such as ALPHA",
}
_PATTERNS: Final = {
    "country": re.compile(COUNTRY_PATTERN),
    "sensitivity": re.compile(SENSITIVITY_PATTERN),
    "compartment": re.compile(NAME_PATTERN),
}


def parse_part(part: str, text: str) -> str:
    """
    Parse one part of a compartment.

    Args:
        part: ``country``, ``sensitivity`` or ``compartment``.

    Raises:
        ValueError: the text says what was expected.
    """
    if _PATTERNS[part].fullmatch(text) is None:
        raise ValueError(EXPECTED[part])
    return text.upper()


@dataclass(frozen=True, slots=True)
class Compartment:
    """A compartment, all parts in upper case."""

    country: str
    sensitivity: str
    compartment: str

    @classmethod
    def parse(cls, country: str, sensitivity: str, compartment: str) -> Compartment:
        """
        Parse the three parts, in any case.

        Raises:
            ValueError: the text says what was expected.
        """
        found = cls(
            parse_part("country", country),
            parse_part("sensitivity", sensitivity),
            parse_part("compartment", compartment),
        )
        if len(found.label) > MAX_LABEL:
            raise ValueError(f"a compartment so short that {found.label} has at most {MAX_LABEL} characters")
        return found

    @property
    def label(self) -> str:
        """The value of the label of objects, by which compartments are compared: ``DE-S-ALPHA``."""
        return f"{self.country}-{self.sensitivity}-{self.compartment}"

    @property
    def context_name(self) -> str:
        """How a context of this compartment is named: ``de-s-alpha``."""
        return self.label.lower()

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of objects."""
        country = self.country.lower()
        return {
            naming.ANNOTATION_LEVEL: f"{country}:{self.sensitivity.lower()}",
            naming.ANNOTATION_COMPARTMENT: f"{country}:{self.compartment.lower()}",
        }

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of somebody who works in this compartment."""
        return (
            f"{naming.GROUP_COUNTRY}{self.country.lower()}",
            f"{naming.GROUP_SENSITIVITY}{self.sensitivity.lower()}",
            f"{naming.GROUP_COMPARTMENT}{self.compartment.lower()}",
        )
