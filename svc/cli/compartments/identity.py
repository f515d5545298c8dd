"""``svc identity``: the compartment that is in effect, and who works in it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import click

from svc.cli.flags import Arguments
from svc.cli.globals import Invocation, SvcCommand, global_options
from svc.errors import printable

if TYPE_CHECKING:
    from svc.compartments.config import Active

#: The user of a kubeconfig with one context.
_NAMED: Final = "jsonpath={.contexts[0].context.user}"
#: From which verbosity on is said where the values come from.
_DEBUG = 1


def _run(ctx: click.Context, **_shared: object) -> None:
    options = global_options(ctx)
    from svc.cli.compartments.configfile import ConfigFile
    from svc.compartments.config import resolve

    invocation: Invocation = ctx.obj
    config, _unknown = ConfigFile(invocation.environ).read()
    active = resolve(config, invocation.environ)
    if options.verbosity >= _DEBUG:
        overrides = f", overridden by {', '.join(active.overrides)}" if active.overrides else ""
        invocation.console.notice(f"context {active.name or 'none'} of {config.path}{overrides}")
    parts = active.compartment
    user, impersonation = _user(active, invocation)
    rows = (
        ("Compartment", parts.label),
        ("Country", parts.country),
        ("Sensitivity", parts.sensitivity),
        ("Compartment", parts.compartment),
        ("Kube Context", printable(active.kube_context) or "that of the kubeconfig"),
        ("User", printable(user)),
        ("User Groups", ", ".join(map(printable, active.groups))),
        ("Impersonation", printable(impersonation)),
    )
    invocation.console.write_text("".join(f"{name}: {value}\n" for name, value in rows))


def _user(active: Active, invocation: Invocation) -> tuple[str, str]:
    """
    Return the user as the API server names it, and whether kubectl works in the groups of the compartment.

    Where it cannot be asked, it is the one of the kubeconfig, which is a name for credentials; a warning says so.
    """
    from svc.cli.compartments.impersonation import identify
    from svc.cli.compartments.kubectl import KubectlFailed, KubectlMissing, ask

    environ = dict(invocation.environ)
    if active.kubeconfig:
        environ["KUBECONFIG"] = active.kubeconfig
    try:
        identity = identify(active, environ)
    except (KubectlMissing, KubectlFailed) as error:
        invocation.console.warn(f"the API server has not named the user: {error}")
        named = ""
        if isinstance(error, KubectlFailed):
            context = [f"--context={active.kube_context}"] if active.kube_context else []
            with contextlib.suppress(KubectlFailed):
                named = ask([*context, "config", "view", "--minify", "-o", _NAMED], environ)
        return f"{named} (of the kubeconfig)" if named else "unknown", "not known"
    obstacle = identity.obstacle(active.impersonate)
    return identity.user, active.impersonate if active.impersonate == "never" else obstacle or "yes"


command = SvcCommand(
    "identity",
    params=[Arguments("words", "", minimum=0, maximum=0, noun="arguments")],
    callback=click.pass_context(_run),
    help="""
    Print the compartment that is in effect: its label and its parts, the Kubernetes context, the user as the API server
    names it, and the groups that belong to the compartment.
    """,
    add_help_option=False,
)
