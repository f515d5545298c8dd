"""The objects that a command of kubectl is aimed at, and whether they are in the current compartment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from svc import naming
from svc.compartments.compartment import Compartment


@dataclass(frozen=True, slots=True)
class Target:
    """
    An object.

    Args:
        namespace: empty where it is in none.
        label: the compartment; empty for none.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    label: str

    @classmethod
    def of(cls, found: Any) -> Target:
        """Read an object of the API."""
        metadata = found["metadata"]
        label = (metadata.get("labels") or {}).get(naming.LABEL_COMPARTMENT, "")
        return cls(found["apiVersion"], found["kind"], metadata.get("namespace", ""), metadata["name"], label)

    @property
    def reference(self) -> str:
        """The object as one word of kubectl, with the group and the version of its kind."""
        group, _slash, version = self.api_version.rpartition("/")
        return f"{self.kind.lower()}.{version}.{group}/{self.name}"

    def is_foreign(self, current: Compartment) -> bool:
        """Whether it is in another compartment; without a label it is in none."""
        return self.label.upper() not in ("", current.label)
