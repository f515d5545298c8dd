"""The command ``svc status``: its flags; the run itself is :mod:`svc.cli.status.run`."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from svc.cli.flags import Arguments, OneOf, Parsed, value_flag
from svc.cli.globals import SvcCommand, global_options

_SECONDS: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?s?\Z")
_SHORTEST: Final = 0.1


def _interval(text: str) -> float:
    seconds = float(text.removesuffix("s")) if _SECONDS.match(text) else 0.0
    if seconds < _SHORTEST:
        raise ValueError(text)
    return seconds


def _run(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.status.addresses import read_addresses
    from svc.cli.status.run import StatusPlan, StatusRun

    files = values["config"]
    plan = StatusPlan(
        addresses=read_addresses(words, files, "--watch"),
        named=bool(words or files),
        json=values["output"] == "json",
        interval=values["watch"],
    )
    return StatusRun(plan, ctx.obj.console).run()


command = SvcCommand(
    "status",
    params=[
        value_flag("--config", "FILE", "ask at the adminAddr of this configuration; repeatable", multiple=True),
        value_flag("-o --output", "string", "text, or json for one array", type=OneOf("text", "json"), default="text"),
        value_flag(
            "-w --watch",
            "seconds",
            "show it again and again, every 2 seconds unless given, until Ctrl-C",
            type=Parsed(_interval, "seconds from 0.1 to 9999, such as --watch=5"),
            implied="2",
        ),
        Arguments("words", "[ADDRESS...]", minimum=0, maximum=None, noun="ADDRESS"),
    ],
    callback=click.pass_context(_run),
    help="""
    Show the proxies, brokers and authorities of this machine: whether they are ready, their identities and when these
    expire, listeners, rates, the database and the last error.

    An ADDRESS is the adminAddr of a process, host:port. Without any, and without --config, 127.0.0.1 is asked at the
    default ports: 9902 (proxy), 9903 (broker) and 9904 (authority).
    """,
    epilog="""
Examples:
  svc status
  svc status --watch
  svc status --config /etc/svc/proxy.yaml 127.0.0.1:9904
  svc status -o json | jq '.[] | select(.ready | not) | .conditions'
""",
    add_help_option=False,
)
