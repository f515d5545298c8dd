"""The commands below ``svc context``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from svc.cli.errors import CliError, UsageRefused
from svc.cli.flags import Arguments, Flag, Parsed, bool_flag, value_flag
from svc.cli.globals import Invocation, SvcCommand, SvcGroup, global_options, run_group
from svc.compartments.compartment import EXPECTED, Compartment, parse_part
from svc.errors import printable

if TYPE_CHECKING:
    from svc.cli.compartments.configfile import ConfigFile
    from svc.compartments.config import Config

_HEADINGS: Final = ("CURRENT", "NAME", "COUNTRY", "SENSITIVITY", "COMPARTMENT", "KUBE-CONTEXT")
_GAP: Final = " " * 3


def _file(ctx: click.Context) -> ConfigFile:
    global_options(ctx)
    from svc.cli.compartments.configfile import ConfigFile

    return ConfigFile(ctx.obj.environ)


def _read(ctx: click.Context) -> Config:
    config, unknown = _file(ctx).read()
    if unknown:
        ctx.obj.console.warn(f"{config.path} has keys that nothing reads: {', '.join(map(printable, unknown))}")
    return config


def _run_list(ctx: click.Context, **_shared: object) -> None:
    config = _read(ctx)
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for name, context in sorted(config.contexts.items()):
        parts = context.compartment
        current = "*" if name == config.current else ""
        row = (current, name, parts.country, parts.sensitivity, parts.compartment, context.kube_context)
        rows.append(tuple(map(printable, row)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in rows]
    ctx.obj.console.write_text("\n".join(lines) + "\n")
    if config.current and config.current not in config.contexts:
        ctx.obj.console.warn(f"the current context is not among them: {printable(config.current)}")


def _run_current(ctx: click.Context, **_shared: object) -> None:
    ctx.obj.console.write_text(f"{_read(ctx).current_name()}\n")


def _run_use(ctx: click.Context, words: tuple[str, ...], **_shared: object) -> None:
    name = words[0]

    from svc.cli.compartments.session import select
    from svc.compartments.config import VARIABLES

    def use(config: Config, document: Any) -> None:
        config.context(name)
        document["currentContext"] = name
        if config.explicit_switch:
            select(name, ctx.obj.environ)

    _file(ctx).change(use)
    ctx.obj.console.write_text(f'Switched to context "{printable(name)}".\n')
    if overriding := [variable for variable in VARIABLES.values() if ctx.obj.environ.get(variable)]:
        ctx.obj.console.warn(f"in this shell parts of it are overridden: {', '.join(overriding)}")


def _run_create(ctx: click.Context, words: tuple[str, ...], **values: Any) -> None:
    file = _file(ctx)
    from svc.compartments.config import Context
    from svc.compartments.document import context_mapping
    from svc.compartments.errors import CompartmentError

    name, compartment = words[0], _compartment(values)
    if name != compartment.context_name:
        raise CompartmentError(
            "context_name_invalid", compartment=compartment.label, name=name, expected=compartment.context_name
        )
    context = Context(compartment, values["kube_context"], values["namespace"] or "")
    config, _unknown = file.read()
    _check_kube_context(context.kube_context, config, ctx.obj)

    def create(config: Config, document: Any) -> None:
        if name in config.contexts:
            raise CompartmentError("context_exists", name=name)
        if document.get("contexts") is None:
            document["contexts"] = {}
        document["contexts"][name] = context_mapping(context)

    file.change(create)
    ctx.obj.console.write_text(f'Context "{name}" created.\n')
    if not config.current:
        ctx.obj.console.notice("no context is selected", hint=f"svc context use {name} selects this one")


def _compartment(values: dict[str, Any]) -> Compartment:
    for flag in ("country", "sensitivity", "compartment", "kube_context"):
        if not values[flag]:
            raise UsageRefused(f"flag --{flag.replace('_', '-')} is missing", "a context has all four of them")
    try:
        return Compartment.parse(values["country"], values["sensitivity"], values["compartment"])
    except ValueError as error:
        raise UsageRefused(f'--compartment does not accept "{values["compartment"]}"', f"expected: {error}") from error


def _check_kube_context(name: str, config: Config, invocation: Invocation) -> None:
    """Refuse a context that the kubeconfig does not have; without kubectl that is not known, and a warning."""
    from svc.cli.compartments.kubectl import KubectlMissing, ask
    from svc.compartments.config import kubeconfig_of

    environ = dict(invocation.environ)
    if kubeconfig := kubeconfig_of(config, environ):
        environ["KUBECONFIG"] = kubeconfig
    try:
        known = ask(["config", "get-contexts", "-o", "name"], environ).splitlines()
    except KubectlMissing as error:
        invocation.console.warn(f"whether the kubeconfig has a context {printable(name)} is not known: {error}")
        return
    if name not in known:
        raise CliError("kube_context_missing", name=name, known=", ".join(known) or "none")


def _run_delete(ctx: click.Context, words: tuple[str, ...], force: bool, **_shared: object) -> None:
    from svc.compartments.errors import CompartmentError

    name = words[0]

    def delete(config: Config, document: Any) -> None:
        config.context(name)
        if name == config.current:
            if not force:
                raise CompartmentError("context_in_use", name=name)
            del document["currentContext"]
        del document["contexts"][name]

    _file(ctx).change(delete)
    ctx.obj.console.write_text(f'Context "{printable(name)}" deleted.\n')


def _part_flag(part: str, text: str) -> Flag:
    return value_flag(f"--{part}", "string", text, type=Parsed(lambda value: parse_part(part, value), EXPECTED[part]))


def _no_arguments() -> Arguments:
    return Arguments("words", "", minimum=0, maximum=0, noun="arguments")


def _name() -> Arguments:
    return Arguments("words", "NAME", minimum=1, maximum=1, noun="NAME")


_list_command = SvcCommand(
    "list",
    params=[_no_arguments()],
    callback=click.pass_context(_run_list),
    short_help="list the contexts",
    help="List the contexts of ~/.svc/config.yaml; the current one is marked with an asterisk.",
    add_help_option=False,
)
_use_command = SvcCommand(
    "use",
    params=[_name()],
    callback=click.pass_context(_run_use),
    short_help="select a context",
    help="""
    Make a context the current one, in every shell. SVC_COUNTRY, SVC_SENSITIVITY and SVC_COMPARTMENT override parts of
    it for one shell.
    """,
    epilog="""
Examples:
  svc context use de-s-alpha
""",
    add_help_option=False,
)
_create_command = SvcCommand(
    "create",
    params=[
        _part_flag("country", "the country code"),
        _part_flag("sensitivity", "the sensitivity: U, C, S or TS"),
        _part_flag("compartment", "the name of the compartment"),
        value_flag("--kube-context", "string", "the context of the kubeconfig to work in", default=""),
        value_flag("--namespace", "string", "the default namespace; without it that of the Kubernetes context"),
        _name(),
    ],
    callback=click.pass_context(_run_create),
    short_help="create a context",
    help="""
    Create a context. Its name is <country>-<sensitivity>-<compartment> in lower case; the kubeconfig has to have the
    Kubernetes context. The current context stays what it is.
    """,
    epilog="""
Examples:
  svc context create de-s-alpha --country=DE --sensitivity=S --compartment=ALPHA --kube-context=prod
""",
    add_help_option=False,
)
_delete_command = SvcCommand(
    "delete",
    params=[bool_flag("--force", "also where it is the current one; then no context is selected"), _name()],
    callback=click.pass_context(_run_delete),
    short_help="delete a context",
    help="Delete a context from ~/.svc/config.yaml. Kubernetes contexts stay as they are.",
    add_help_option=False,
)
_current_command = SvcCommand(
    "current",
    params=[_no_arguments()],
    callback=click.pass_context(_run_current),
    short_help="print the name of the current context",
    help="Print the name of the current context. What overrides parts of it is shown by svc identity.",
    add_help_option=False,
)
command = SvcGroup(
    "context",
    callback=click.pass_context(run_group),
    commands=[_create_command, _current_command, _delete_command, _list_command, _use_command],
    invoke_without_command=True,
    help="""
    Contexts of ~/.svc/config.yaml: each is a compartment (country, sensitivity, name) with the Kubernetes context and
    the namespace to work in.
    """,
    add_help_option=False,
)
