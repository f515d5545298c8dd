"""The command ``svc curl``: its flags; the exchange itself is :mod:`svc.cli.exchange`."""

from __future__ import annotations

from typing import Any

import click

from svc.cli.flags import OneOf, Parsed, Words, bool_flag, value_flag
from svc.cli.globals import SvcCommand, global_options


def _size(text: str) -> int:
    from svc.settings import parse_size

    return parse_size(text)


def _duration(text: str) -> float:
    from svc.settings import parse_duration

    return parse_duration(text)


def _run(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    from svc.cli.exchange.perform import perform
    from svc.cli.exchange.plan import CurlPlan

    return perform(CurlPlan.read(words[0], values, options, ctx.obj.environ), ctx.obj)


_FLAGS = (
    value_flag("-d --data", "string", "request body; GET becomes POST", default=""),
    bool_flag("--detailed-exit-codes", "exit with 1 to 4 for what failed (SVC_DETAILED_EXIT_CODES)", default=None),
    value_flag("--expect-id", "SPIFFE-ID", "the server's identity; repeatable (SVC_EXPECT_ID)", multiple=True),
    value_flag("-H --header", "string", "extra request header; repeatable", multiple=True),
    value_flag("--inject-faults", "strings", "simulate: no-workload-statement, bad-workload-statement", multiple=True),
    value_flag("--issuer", "SPIFFE-ID", "central issuer of statements; repeatable (SVC_ISSUERS)", multiple=True),
    value_flag(
        "--max-body", "size", "largest body kept back until it is verified", type=Parsed(_size, "a size such as 16MiB")
    ),
    value_flag(
        "--max-time", "duration", "longest time for everything", type=Parsed(_duration, "a duration such as 10s")
    ),
    value_flag(
        "-n --notarization-level",
        "string",
        "workload, logRequest or signRequest",
        type=OneOf("workload", "logRequest", "signRequest"),
        default="workload",
    ),
    value_flag("-o --output", "string", "text, or json for one object", type=OneOf("text", "json"), default="text"),
    value_flag("--pq-bundle", "FILE", "post-quantum roots (SVC_PQ_BUNDLE)"),
    bool_flag("--print-receipt", "pretty-print the signed request receipt when validated (signRequest only)"),
    bool_flag("--print-workload", "pretty-print the workload identity statement when validated"),
    value_flag(
        "--profile",
        "string",
        "signatures demanded: hybrid, pq, classical or cnsa2 (SVC_PROFILE)",
        type=OneOf("hybrid", "pq", "classical", "cnsa2"),
    ),
    value_flag("-X --request", "string", "request method", default="GET"),
    bool_flag("--require-pinned-id", "refuse to run without --expect-id"),
    value_flag("--save-evidence", "FILE", "write what was verified to a new file"),
    bool_flag("-i --show-headers", "print response headers"),
    bool_flag("-s --silent", "suppress response body"),
    bool_flag("--validate", "require workload statement verification", default=True),
)
_FLAGS[6].shown_default = "1GiB"
_FLAGS[13].shown_default = "hybrid"

command = SvcCommand(
    "curl",
    params=[*_FLAGS, Words("words", "<url>", least=1, most=1, noun="URL")],
    callback=click.pass_context(_run),
    help="""
    Send one HTTP request and check the workload identity statement and, with -n signRequest, the signed receipt that
    the protected service returns. Nothing of the body reaches standard output before it is verified.
    """,
    epilog="""
Examples:
  svc curl https://api.example.org:8443/
  svc curl -n signRequest --print-workload --print-receipt -i https://api.example.org:8443/
  svc curl --expect-id spiffe://example.org/ns/pay/sa/api -d '{"amount": 5}' https://api.example.org:8443/v1/pay
""",
    add_help_option=False,
)
