"""
The contexts of a configuration file, and which compartment is in effect.

Owns how the environment overrides the file: ``SVC_COUNTRY``, ``SVC_SENSITIVITY`` and ``SVC_COMPARTMENT`` each replace
one part of the current context's compartment, or together name one where no context is selected; ``KUBECONFIG``
replaces the key ``kubeconfig``.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from svc import naming
from svc.compartments.compartment import Compartment, parse_part
from svc.compartments.errors import CompartmentError

#: The variable of each part of a compartment.
VARIABLES: Final = {
    "country": naming.ENV_COUNTRY,
    "sensitivity": naming.ENV_SENSITIVITY,
    "compartment": naming.ENV_COMPARTMENT,
}
#: Every user who has authenticated is in it, also one who impersonates.
AUTHENTICATED: Final = "system:authenticated"


@dataclass(frozen=True, slots=True)
class Context:
    """
    A context of the file.

    Args:
        kube_context: the one of the kubeconfig.
        namespace: empty for that of the kubeconfig.
        impersonate: ``auto``, ``always`` or ``never``.
    """

    compartment: Compartment
    kube_context: str
    namespace: str = ""
    impersonate: str = "auto"


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Whether and where commands are recorded."""

    enabled: bool = False
    path: str = naming.DEFAULT_AUDIT_LOG
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Config:
    """
    A configuration file.

    Args:
        path: of the file, for messages.
        current: the name of the current context; empty for none. It need not be there.
        kubeconfig: paths as in ``KUBECONFIG``; empty for what kubectl takes.
        templates: for kinds with their group, the places of what has metadata of its own.
    """

    path: str
    current: str = ""
    contexts: Mapping[str, Context] = field(default_factory=dict)
    default_groups: tuple[str, ...] = ()
    kubeconfig: str = ""
    explicit_switch: bool = False
    audit: AuditLog = AuditLog()
    templates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def context(self, name: str) -> Context:
        """
        The context of a name.

        Raises:
            CompartmentError: ``context_not_found``, with the names that there are.
        """
        found = self.contexts.get(name)
        if found is None:
            raise CompartmentError("context_not_found", name=name, path=self.path, known=self._known)
        return found

    def current_name(self) -> str:
        """
        The name of the current context, which is there.

        Raises:
            CompartmentError: ``context_unset`` or ``context_not_found``.
        """
        if not self.current:
            raise CompartmentError("context_unset", path=self.path, known=self._known)
        self.context(self.current)
        return self.current

    @property
    def _known(self) -> str:
        return ", ".join(sorted(self.contexts)) or "none"


@dataclass(frozen=True, slots=True)
class Active:
    """
    What is in effect for a command.

    Args:
        name: of the current context; empty where the environment alone names the compartment.
        kube_context: empty for that of the kubeconfig.
        kubeconfig: the value for ``KUBECONFIG``; empty where it is not to be set.
        overrides: the variables that replace a part of the compartment.
        impersonate: as that of the context.
        identity: the flags of kubectl by which it works in the groups; empty for as whom the kubeconfig says.
    """

    name: str
    compartment: Compartment
    kube_context: str
    namespace: str
    kubeconfig: str
    groups: tuple[str, ...]
    overrides: tuple[str, ...]
    impersonate: str = "auto"
    identity: tuple[str, ...] = ()


def resolve(config: Config, environ: Mapping[str, str]) -> Active:
    """
    Find out which compartment is in effect.

    Raises:
        CompartmentError: there is none, a variable has no acceptable value, or it differs from the current context
            where switching has to be explicit.
    """
    given = {part: environ[name] for part, name in VARIABLES.items() if environ.get(name)}
    context = config.context(config.current) if config.current else None
    if context is None and len(given) < len(VARIABLES):
        if not given:
            config.current_name()
        missing = ", ".join(name for part, name in VARIABLES.items() if part not in given)
        raise CompartmentError(detail=f"no context is selected in {config.path}, and {missing} is not set")
    compartment = _overridden(config, context, given)
    groups = (*compartment.groups, *config.default_groups, AUTHENTICATED)
    return Active(
        name=config.current,
        compartment=compartment,
        kube_context=context.kube_context if context else "",
        namespace=context.namespace if context else "",
        kubeconfig=kubeconfig_of(config, environ),
        groups=tuple(dict.fromkeys(groups)),
        overrides=tuple(VARIABLES[part] for part in given),
        impersonate=context.impersonate if context else "auto",
    )


def kubeconfig_of(config: Config, environ: Mapping[str, str]) -> str:
    """The value for ``KUBECONFIG``: that of the environment, else the key of the file; empty for neither."""
    paths = config.kubeconfig.split(os.path.pathsep)
    return environ.get("KUBECONFIG") or os.path.pathsep.join(at_home(path, environ) for path in paths)


def _overridden(config: Config, context: Context | None, given: Mapping[str, str]) -> Compartment:
    parts = {part: getattr(context.compartment, part) for part in VARIABLES} if context else {}
    for part, text in given.items():
        try:
            wanted = parse_part(part, text)
        except ValueError as error:
            raise _invalid(VARIABLES[part], text, error) from error
        if context and config.explicit_switch and wanted != parts[part]:
            raise CompartmentError(
                "context_switch_required",
                variable=VARIABLES[part],
                wanted=wanted,
                name=config.current,
                current=context.compartment.label,
                path=config.path,
            )
        parts[part] = wanted
    try:
        return Compartment.parse(**parts)
    except ValueError as error:
        # Each part is valid, and the label that they make is too long.
        raise _invalid(naming.ENV_COMPARTMENT, parts["compartment"], error) from error


def _invalid(variable: str, value: str, error: ValueError) -> CompartmentError:
    return CompartmentError("compartment_variable_invalid", variable=variable, value=value, expected=error)


def at_home(path: str, environ: Mapping[str, str]) -> str:
    """Replace ``~/`` at the beginning of a path by the home folder."""
    home = environ.get("HOME") or os.path.expanduser("~")
    return home + path[1:] if path.startswith("~/") else path
