"""
The text of the configuration file: what is valid in it, and how it is changed.

Keys that are not known are kept, and so are comments: a change is made in the text as it was read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from svc import naming
from svc.compartments.compartment import (
    COUNTRY_PATTERN,
    NAME_PATTERN,
    SENSITIVITY_PATTERN,
    Compartment,
    parse_part,
)
from svc.compartments.config import AuditLog, Config, Context
from svc.settings import Items, Settings, ValueFormat, parse, text_format

_NAMESPACE: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_TEMPLATE_KIND: Final = r"[A-Z][A-Za-z0-9]*(\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?)?"
#: Keys separated by dots; an asterisk stands for each key.
_TEMPLATE_PLACE: Final = r"([A-Za-z0-9_-]+|\*)(\.([A-Za-z0-9_-]+|\*))*"
#: A text that is one word of a command line and of a message.
_WORD: Final = r"[^\x00-\x1f\x7f]+"


def _part(name: str) -> BeforeValidator:
    return BeforeValidator(lambda value: parse_part(name, value) if isinstance(value, str) else value)


def _matching(pattern: str, expected: str) -> BeforeValidator:
    compiled = re.compile(pattern)

    def matched(value: object) -> object:
        if isinstance(value, str) and compiled.fullmatch(value) is None:
            raise ValueError(expected)
        return value

    return BeforeValidator(matched)


def _text(kind: str, pattern: str) -> ValueFormat:
    return text_format(kind, f"^({pattern})$")


Country = Annotated[str, _part("country"), _text("country", COUNTRY_PATTERN)]
Sensitivity = Annotated[str, _part("sensitivity"), _text("`U`, `C`, `S`, `TS`", SENSITIVITY_PATTERN)]
Name = Annotated[str, _part("compartment"), _text("compartment", NAME_PATTERN)]
Namespace = Annotated[str, _matching(_NAMESPACE, "the name of a namespace"), _text("namespace", _NAMESPACE)]
Word = Annotated[str, _matching(_WORD, "a text without control characters"), _text("text", _WORD)]
TemplateKind = Annotated[
    str, _matching(_TEMPLATE_KIND, "a kind with its group, such as Rollout.argoproj.io"), _text("kind", _TEMPLATE_KIND)
]
TemplatePlace = Annotated[
    str, _matching(_TEMPLATE_PLACE, "keys separated by dots, such as spec.template"), _text("place", _TEMPLATE_PLACE)
]


class CompartmentSettings(Settings):
    """A mapping of the file; keys that are not known are left alone."""

    model_config = ConfigDict(extra="allow")


class ContextSettings(CompartmentSettings):
    """A context: a compartment, and the Kubernetes context to work in."""

    country: Country
    """The country code, up to 8 letters and digits."""
    sensitivity: Sensitivity
    """The sensitivity."""
    compartment: Name
    """Letters, digits and inner `-`, `_`, `.`; with country and sensitivity at most 63 characters."""
    kubeContext: Word
    """The context of the kubeconfig that is used."""
    namespace: Namespace | None = None
    """The default namespace; without it that of the Kubernetes context."""
    impersonate: Literal["auto", "always", "never"] = "auto"
    """Whether kubectl works in the groups of the compartment: where that is permitted and takes no other group away, in
    any case, or never."""

    @model_validator(mode="after")
    def _fits_label(self) -> Self:
        self.to_context()
        return self

    def to_context(self) -> Context:
        """The value of this mapping."""
        compartment = Compartment.parse(self.country, self.sensitivity, self.compartment)
        return Context(compartment, self.kubeContext, self.namespace or "", self.impersonate)


class AuditLogSettings(CompartmentSettings):
    """The record of commands."""

    enabled: bool = False
    """Whether commands are recorded."""
    path: Word = naming.DEFAULT_AUDIT_LOG
    """The file."""
    level: Literal["debug", "info", "warn", "error"] = "info"
    """The least level that is recorded."""


class ContextsSettings(CompartmentSettings):
    """The configuration file of the wrapper commands."""

    currentContext: Word | None = None
    """The name of the context that is in effect."""
    contexts: dict[Word, ContextSettings] = Field(default_factory=dict)
    """Contexts by name."""
    defaultUserGroups: Items[Word] = ()
    """Groups of the user in every context."""
    kubeconfig: Word | None = None
    """The kubeconfig, or several separated by colons; `KUBECONFIG` wins, and without both it is `~/.kube/config`."""
    requireExplicitContextSwitch: bool = False
    """Whether variables must agree with the current context, and what changes something needs a context that was
    selected in the same session."""
    auditLog: AuditLogSettings = Field(default_factory=AuditLogSettings)
    """The record of commands."""
    podTemplates: dict[TemplateKind, Items[TemplatePlace]] = Field(default_factory=dict)
    """Where objects of further kinds have templates of pods: for `Kind.group` a list such as `[spec.template]`."""

    def unknown_keys(self) -> list[str]:
        """The keys that nothing reads, with the path to each."""
        nested = {"auditLog": self.auditLog, **{f"contexts.{name}": each for name, each in self.contexts.items()}}
        below = [f"{path}.{key}" for path, each in nested.items() for key in each.model_extra or ()]
        return [*(self.model_extra or ()), *below]


def read_config(text: str, path: str) -> tuple[Config, list[str]]:
    """
    Read the text of a file; an empty one has no keys.

    Returns:
        The configuration, and the keys that are not known.

    Raises:
        ConfigUnreadable: it is not YAML that :mod:`svc.strictyaml` accepts.
        ConfigInvalid: with every defect found.
    """
    found = parse(text, ContextsSettings, path)
    audit = found.auditLog
    config = Config(
        path=path,
        current=found.currentContext or "",
        contexts={name: each.to_context() for name, each in found.contexts.items()},
        default_groups=tuple(found.defaultUserGroups),
        kubeconfig=found.kubeconfig or "",
        explicit_switch=found.requireExplicitContextSwitch,
        audit=AuditLog(audit.enabled, audit.path, audit.level),
        templates={kind: tuple(places) for kind, places in found.podTemplates.items()},
    )
    return config, found.unknown_keys()


def changed(text: str, change: Callable[[Any], None]) -> str:
    """
    Change a valid text; all else in it stays.

    Args:
        change: gets the document, a mapping that it may change.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    document = yaml.load(text)
    if document is None:
        document = CommentedMap()
    change(document)
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def context_mapping(context: Context) -> dict[str, str]:
    """The mapping of a context in the file."""
    compartment = context.compartment
    mapping = {
        "country": compartment.country,
        "sensitivity": compartment.sensitivity,
        "compartment": compartment.compartment,
        "kubeContext": context.kube_context,
    }
    return {**mapping, "namespace": context.namespace} if context.namespace else mapping
