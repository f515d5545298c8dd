"""The command ``svc verify``: its flags; the verification itself is :mod:`svc.cli.offline`."""

from __future__ import annotations

from typing import Any

import click

from svc.cli.flags import ISSUER_FLAG, PROFILE_FLAG, Arguments, OneOf, bool_flag, value_flag
from svc.cli.globals import SvcCommand, global_options


def _run(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    from svc.cli.offline import VerifyPlan, run_verify

    return run_verify(VerifyPlan.read(words[0], values, options, ctx.obj.environ), ctx.obj)


command = SvcCommand(
    "verify",
    params=[
        value_flag("--expect-id", "SPIFFE-ID", "the workload's identity; repeatable (SVC_EXPECT_ID)", multiple=True),
        bool_flag("--html", "write the whole report as one HTML page"),
        ISSUER_FLAG,
        value_flag("-o --output", "string", "text, or json for one object", type=OneOf("text", "json"), default="text"),
        value_flag("--pq-bundle", "FILE", "post-quantum roots, or an archive (SVC_PQ_BUNDLE)"),
        bool_flag("--print-receipt", "pretty-print the signed request receipt"),
        bool_flag("--print-workload", "pretty-print the workload identity statement"),
        PROFILE_FLAG,
        bool_flag("--require-trusted-time", "refuse a time that only the signer asserts"),
        value_flag("--trust-bundle", "FILE", "SPIFFE roots: PEM, SPIFFE bundle or archive; repeatable", multiple=True),
        value_flag("--trust-domain", "string", "whose roots a PEM file or single SPIFFE bundle holds"),
        Arguments("words", "FILE", minimum=1, maximum=1, noun="FILE"),
    ],
    callback=click.pass_context(_run),
    help="""
    Verify evidence that svc curl --save-evidence wrote. No network is needed: statement and receipt are verified at the
    time that they claim to be from, against roots that come from the user, never from the file.

    Without --trust-bundle the roots of the Workload API are used, where its socket exists.

    With --html standard output is a page for a browser or a printer, for people who do not read JSON: who, what, when,
    every check with its result, and what is not proven. A failed verification is such a page too, with exit status 1.
    """,
    epilog="""
Examples:
  svc verify --trust-bundle bundle-archive.json --pq-bundle bundle-archive.json evidence.json
  svc verify --html --trust-bundle bundle-archive.json evidence.json > report.html
  svc verify --trust-bundle roots.pem --trust-domain example.org --pq-bundle pq-bundle.json evidence.json
""",
    add_help_option=False,
)
