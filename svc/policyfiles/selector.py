"""
Label selectors: which pods a policy is about, decided as Kubernetes decides it.

Owns the keys of a selector and their limits; where labels come from is for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from svc.settings import Items, Settings, text_format

MAX_REQUIREMENTS: Final = 64
#: Longer keys and values are no labels of Kubernetes.
_Key = Annotated[str, Field(min_length=1, max_length=317), text_format("label", "^.{1,317}$")]
_Value = Annotated[str, Field(max_length=63), text_format("value", "^.{0,63}$")]


class LabelRequirement(Settings):
    """A requirement on one label."""

    key: _Key
    """The name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """`In` and `NotIn` compare with `values`, the others ask for the label itself. A pod without the label satisfies
    `NotIn`."""
    values: Annotated[Items[_Value], Field(max_length=MAX_REQUIREMENTS)] = ()
    """The values. *Together*: at least one with `In` and `NotIn`, none with the others."""

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            raise ValueError("values with the operators In and NotIn, and with no others")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy it."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")


class PodSelector(Settings):
    """Labels that a pod must have: all requirements hold. An empty one selects every pod."""

    matchLabels: Annotated[dict[_Key, _Value], Field(max_length=MAX_REQUIREMENTS)] = Field(default_factory=dict)
    """Labels with their values."""
    matchExpressions: Annotated[Items[LabelRequirement], Field(max_length=MAX_REQUIREMENTS)] = ()
    """Further requirements."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is selected."""
        named = all(labels.get(key) == value for key, value in self.matchLabels.items())
        return named and all(each.matches(labels) for each in self.matchExpressions)
