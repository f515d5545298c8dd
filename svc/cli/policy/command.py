"""The commands below ``svc policy``: their flags; what they do is in the modules beside this one."""

from __future__ import annotations

from typing import Any

import click

from svc.cli.flags import Arguments, Integer, OneOf, bool_flag, value_flag
from svc.cli.globals import SvcCommand, SvcGroup, global_options, run_group

_SOURCES = (
    value_flag("--config", "FILE", "a configuration of the proxy: its trustDomain and policy are read"),
    value_flag("--trust-domain", "string", "the trust domain, where there is no configuration"),
)
_OUTPUT = value_flag(
    "-o --output", "string", "text, or json for one object", type=OneOf("text", "json"), default="text"
)


def _run_check(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.policy.check import CheckPlan, run_check

    return run_check(CheckPlan.read(words, values), ctx.obj)


def _run_test(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.policy.cases import TestPlan, run_test

    return run_test(TestPlan.read(words, values), ctx.obj)


_check_command = SvcCommand(
    "check",
    params=[
        value_flag("--as as_", "SPIFFE-ID", "the client; without it the files are validated"),
        value_flag(
            "--asked",
            "string",
            "the notarization level that the client asks for",
            type=OneOf("none", "workload", "logRequest", "signRequest"),
        ),
        value_flag("--alpn", "string", "the application protocol agreed on in the TLS handshake"),
        value_flag("--client-id", "string", "the MQTT client identifier"),
        value_flag("--compartment", "string", "the client's compartment, instead of what the configuration says"),
        *_SOURCES,
        value_flag("--host", "string", "the host of the request"),
        value_flag("--level", "string", "the client's security level, such as DE:S, in the same way"),
        value_flag("--listener", "string", "the listener"),
        value_flag("--method", "string", "the method of the request"),
        value_flag(
            "--mqtt-action",
            "string",
            "what an MQTT client does: connect, publish or subscribe",
            type=OneOf("connect", "publish", "subscribe"),
        ),
        _OUTPUT,
        value_flag("--own", "SPIFFE-ID", "the workload behind the proxy, for sameCompartment and dominates"),
        value_flag("--path", "string", "the path of the request"),
        value_flag("--port", "int", "the port of the listener", type=Integer(), shown_default="443"),
        bool_flag("--post-quantum", "whether the key agreement is post-quantum (default true)", default=None),
        value_flag("--sni", "string", "the server name in the TLS handshake"),
        value_flag("--topic", "string", "the topic name of an MQTT publish, or the topic filter of a subscribe"),
        Arguments("words", "[FILE...]", minimum=0, maximum=None, noun="FILE"),
    ],
    callback=click.pass_context(_run_check),
    short_help="validate policy files and explain one decision",
    help="""
    Validate policy files as a whole, and name rules that never decide because an earlier one matches all that they
    match. With --as a decision is explained: which rule allows or denies, what policies in dry run would change, and
    which Audit rules match. It is the code by which the proxy decides; certificates on deny lists are not known here.

    Without FILE those of policy.files in the configuration are read.
    """,
    epilog="""
Examples:
  svc policy check --config /etc/svc/proxy.yaml
  svc policy check --trust-domain x.org --as spiffe://x.org/ns/web/sa/fe --method GET --path /orders/7 shop.yaml
  svc policy check --trust-domain x.org --as spiffe://x.org/dev/7 --mqtt-action publish --topic dev/7/state iot.yaml
""",
    add_help_option=False,
)
_test_command = SvcCommand(
    "test",
    params=[*_SOURCES, _OUTPUT, Arguments("words", "[FILE...]", minimum=0, maximum=None, noun="FILE")],
    callback=click.pass_context(_run_test),
    short_help="compare decisions with a table of expected ones",
    help="""
    Decide on the cases of all SvcPolicyTest documents in the files by all policies in them, and name those whose
    decision, or rule, is not the expected one. The exit status is 1 where there is any.
    """,
    epilog="""
Examples:
  svc policy test --trust-domain prod.example.org shop.yaml shop-cases.yaml
  svc policy test --config proxy.yaml /etc/svc/policy/*.yaml cases.yaml
""",
    add_help_option=False,
)
command = SvcGroup(
    "policy",
    callback=click.pass_context(run_group),
    commands=[_check_command, _test_command],
    invoke_without_command=True,
    help="""
    Check policy files, and explain and test their decisions without a proxy.
    """,
    add_help_option=False,
)
