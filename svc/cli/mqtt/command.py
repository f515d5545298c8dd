"""The commands below ``svc mqtt``: their flags; what they do is in :mod:`svc.cli.mqtt.dead_letters`."""

from __future__ import annotations

from typing import Any, Final

import click

from svc import naming
from svc.cli.flags import Arguments, OneOf, bool_flag, value_flag
from svc.cli.globals import SvcCommand, SvcGroup, global_options, run_group

_CONFIG: Final = value_flag(
    "--config",
    "FILE",
    "the proxy's configuration, which names the buffer and its keys",
    default=naming.DEFAULT_PROXY_CONFIG,
    shown_default=naming.DEFAULT_PROXY_CONFIG,
)
_CLIENT: Final = value_flag("--client", "ID", "those of this client identifier")
_CHOICE: Final = (
    bool_flag("--all", "all dead letters"),
    _CLIENT,
    _CONFIG,
    Arguments("words", "[NUMBER...]", minimum=0, maximum=None, noun="NUMBER"),
)
_WHO: Final = """
    The command reads the buffer itself, beside a proxy that runs or without one: run it as the user of the proxy, or
    as root where the buffer has no keys.
"""


def _run_list(ctx: click.Context, words: tuple[str, ...], config: str, client: str | None, output: str) -> int:
    global_options(ctx)
    from svc.cli.mqtt.dead_letters import run_list

    return run_list(config, client, ctx.obj.console, json=output == "json")


def _decide(ctx: click.Context, decision: str, words: tuple[str, ...], values: dict[str, Any]) -> int:
    global_options(ctx)
    from svc.cli.mqtt.dead_letters import Choice, run_decision

    choice = Choice.read(words, every=values["all"], client=values["client"])
    return run_decision(values["config"], choice, decision, ctx.obj.console)


def _run_send(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    return _decide(ctx, "send", words, values)


def _run_delete(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    return _decide(ctx, "delete", words, values)


_list_command = SvcCommand(
    "list",
    params=[
        _CLIENT,
        _CONFIG,
        value_flag(
            "-o --output", "string", "text, or json for one object a line", type=OneOf("text", "json"), default="text"
        ),
        Arguments("words", "", minimum=0, maximum=0, noun="argument"),
    ],
    callback=click.pass_context(_run_list),
    short_help="list the messages that a broker does not accept",
    help=f"""
    List the dead letters of a proxy, the oldest first: messages that it acknowledged to their clients, and that the
    broker or the proxy of the next hop will not accept. The payload is in the JSON, in base64url.
    {_WHO}""",
    epilog="""
Examples:
  svc mqtt dead-letters list
  svc mqtt dead-letters list --client thermometer-7 -o json | jq -r .topic
""",
    add_help_option=False,
)
_send_command = SvcCommand(
    "send",
    params=list(_CHOICE),
    callback=click.pass_context(_run_send),
    short_help="send them after all",
    help=f"""
    Send dead letters after all, once the broker accepts them: each becomes a message of its session again, behind
    those that wait there. It keeps what is left of its Message Expiry Interval.

    The proxy does it within seconds, and the command waits for that; without a proxy it is done when one starts.
    {_WHO}""",
    epilog="""
Examples:
  svc mqtt dead-letters send 1041 1042
  svc mqtt dead-letters send --all
""",
    add_help_option=False,
)
_delete_command = SvcCommand(
    "delete",
    params=list(_CHOICE),
    callback=click.pass_context(_run_delete),
    short_help="delete them: nobody will get them",
    help=f"""
    Delete dead letters: messages that their clients were promised, and that nobody will get. The proxy logs each.

    The proxy does it within seconds, and the command waits for that; without a proxy it is done when one starts.
    {_WHO}""",
    epilog="""
Examples:
  svc mqtt dead-letters delete 1041
  svc mqtt dead-letters delete --client thermometer-7
""",
    add_help_option=False,
)
_dead_letters = SvcGroup(
    "dead-letters",
    callback=click.pass_context(run_group),
    commands=[_list_command, _send_command, _delete_command],
    invoke_without_command=True,
    short_help="messages that a broker does not accept",
    help="""
    List, send and delete dead letters: MQTT messages that a proxy with ack: middleware acknowledged to their clients,
    and that the broker or the proxy of the next hop will not accept.
    """,
    add_help_option=False,
)
command = SvcGroup(
    "mqtt",
    callback=click.pass_context(run_group),
    commands=[_dead_letters],
    invoke_without_command=True,
    help="""
    Look at the MQTT messages that a proxy stores.
    """,
    add_help_option=False,
)
