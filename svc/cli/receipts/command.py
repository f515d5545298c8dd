"""The commands below ``svc receipts``: their flags; what they do is in the modules beside this one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import click

from svc import naming
from svc.cli.flags import ISSUER_FLAG, PROFILE_FLAG, Arguments, Integer, OneOf, bool_flag, value_flag
from svc.cli.globals import SvcCommand, SvcGroup, global_options, run_group

#: An id, a nonce or jti, or the beginning of an id that a narrow table shows, where it begins like a flag.
_DASHED: Final = re.compile(r"-(?:[A-Za-z0-9_-]{42}=?|[A-Za-z0-9_-]{21}|[A-Za-z0-9_][A-Za-z0-9_-]{10})\Z")
_OUTCOMES: Final = (
    "complete",
    "client_aborted",
    "server_aborted",
    "timeout",
    "credentials_expired",
    "upgraded",
)
#: The default of ``list --limit``.
LISTED: Final = 100

_SOURCE = (
    value_flag(
        "--config",
        "FILE",
        "the proxy's configuration, which names the database",
        shown_default=naming.DEFAULT_PROXY_CONFIG,
    ),
    value_flag("--expect-id", "SPIFFE-ID", "the workload's identity; repeatable (SVC_EXPECT_ID)", multiple=True),
    value_flag("--from", "URL", "read from a proxy: https://host:port", advice=", https://host:port"),
    value_flag("--notary", "FILE", "the notary's database: a file, or a postgresql:// URL"),
)
_FILTERS = (
    value_flag("--client", "SPIFFE-ID", "requests of this client"),
    value_flag("--outcome", "string", "how the exchange ended, such as timeout", type=OneOf(*_OUTCOMES)),
    value_flag("--path", "string", "the beginning of the path; with *, a pattern of the whole path"),
    value_flag("--since", "time", "from this time on: a duration such as 1h or 7d, or 2026-11-22T20:00:00Z"),
    value_flag("--status", "string", "status of the response: 404, or a class such as 5xx"),
    value_flag("--topic", "string", "the beginning of an MQTT topic, or a pattern as with --path"),
    value_flag("--until", "time", "before this time, as with --since"),
)


class _RecordCommand(SvcCommand):
    """A command whose argument may be an id that begins with a dash, which one in 64 does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for param in self.get_params(ctx) for name in param.opts}
        dashed = [word for word in args if _DASHED.match(word) and word not in known]
        if "--" in args or not dashed:
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, [*(word for word in args if word not in dashed), "--", *dashed])


def _run_list(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    from svc.cli.receipts.listing import ListPlan, run_list

    return run_list(ListPlan.read(values, options, ctx.obj.environ, datetime.now(UTC)), ctx.obj)


def _run_show(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    from svc.cli.receipts.showing import ShowPlan, run_show

    return run_show(ShowPlan.read(words[0], values, options, ctx.obj.environ), ctx.obj)


def _run_export(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    from svc.cli.receipts.exporting import ExportPlan, run_export

    return run_export(ExportPlan.read(words, values, options, ctx.obj.environ, datetime.now(UTC)), ctx.obj)


_list_command = SvcCommand(
    "list",
    params=[
        *_SOURCE,
        *_FILTERS,
        value_flag("--limit", "int", "the most records", type=Integer(), default=LISTED, shown_default=str(LISTED)),
        value_flag(
            "-o --output", "string", "text, or json for one object a line", type=OneOf("text", "json"), default="text"
        ),
        Arguments("words", "", minimum=0, maximum=0, noun="argument"),
    ],
    callback=click.pass_context(_run_list),
    short_help="list records, newest first",
    help="""
    List the records of a notary, newest first: signed receipts, and the unsigned records of level logRequest. Nothing
    is verified; svc receipts show does that for one of them.

    A database is read beside the proxy that uses it, or without one; nothing in it is changed. With --from a proxy is
    asked over mutual TLS, and it gives what our identity may read: a client its own receipts, the workload itself and
    notary.readers all. It serves no unsigned records.
    """,
    epilog=f"""
Examples:
  svc receipts list --since 1h --status 5xx
  svc receipts list --notary {naming.DEFAULT_NOTARY_DATABASE} --path '/v1/pay*' --client spiffe://example.org/ns/web/sa/fe
  svc receipts list --from https://api.example.org:8443 --since 7d -o json
""",
    add_help_option=False,
)
_show_command = _RecordCommand(
    "show",
    params=[
        *_SOURCE,
        bool_flag("--html", "write the whole report as one HTML page"),
        ISSUER_FLAG,
        value_flag("-o --output", "string", "text, or json for one object", type=OneOf("text", "json"), default="text"),
        value_flag("--pq-bundle", "FILE", "post-quantum roots, or an archive (SVC_PQ_BUNDLE)"),
        PROFILE_FLAG,
        bool_flag("--require-trusted-time", "refuse a time that only the signer asserts"),
        value_flag("--trust-bundle", "FILE", "SPIFFE roots: PEM, SPIFFE bundle or archive; repeatable", multiple=True),
        value_flag("--trust-domain", "string", "whose roots a PEM file or single SPIFFE bundle holds"),
        Arguments("words", "ID", minimum=1, maximum=1, noun="ID"),
    ],
    callback=click.pass_context(_run_show),
    short_help="show one record, verified where it is signed",
    help="""
    Show one record: by its id as a list or a report shows it, by the beginning of the id, by the nonce of the request
    or by the jti. With --from an id has to be whole.

    A signed receipt is verified at the time that it claims to be from, as svc verify does. Where that fails, what is
    stored is shown as not verified, with the reason, and the exit status is 1. A record of level logRequest has no
    signature and is shown as such.
    """,
    epilog="""
Examples:
  svc receipts show mLP4LXoh --trust-bundle bundle-archive.json
  svc receipts show --from https://api.example.org:8443 -o json mLP4LXohP2dACG49/70wCB4mlHGk1SD8+elwJu5SVJk=
""",
    add_help_option=False,
)
_export_command = _RecordCommand(
    "export",
    params=[
        *_SOURCE,
        *_FILTERS,
        value_flag("--limit", "int", "the most receipts", type=Integer()),
        value_flag("--output", "FOLDER", "where the evidence files go; for one ID also a file"),
        Arguments("words", "[ID]", minimum=0, maximum=1, noun="ID"),
    ],
    callback=click.pass_context(_run_export),
    short_help="write receipts as evidence files",
    help="""
    Write signed receipts with their statements as evidence files, each named after its id, for svc verify: the one that
    is named, or all that the filters select. The files contain the salts of redacted values where the source gives
    them; they are of mode 0600.

    A file that exists is never replaced: one with the same content counts as exported, another is an error. The exit
    status is 1 if any receipt could not be exported.
    """,
    epilog="""
Examples:
  svc receipts export --since 7d --output evidence
  svc receipts export mLP4LXoh --output evidence.json
""",
    add_help_option=False,
)
command = SvcGroup(
    "receipts",
    callback=click.pass_context(run_group),
    commands=[_list_command, _show_command, _export_command],
    invoke_without_command=True,
    help="""
    Look into the records of a notary: what was requested, by whom, and how it ended.
    """,
    add_help_option=False,
)
