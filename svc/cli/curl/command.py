"""The command ``svc curl``: its flags; what it does is :mod:`svc.cli.curl.run`."""

from __future__ import annotations

from typing import Any, Final

import click

from svc.cli.flags import ISSUER_FLAG, PROFILE_FLAG, Arguments, DataFlag, OneOf, Parsed, bool_flag, value_flag
from svc.cli.globals import SvcCommand, global_options


def _size(text: str) -> int:
    from svc.settings import parse_size

    return parse_size(text)


def _duration(text: str) -> float:
    """Read a duration; a number without a unit means seconds, as with curl."""
    from svc.settings import parse_duration

    return parse_duration(f"{text}s" if text[-1:].isdigit() else text)


def _data_flag(names: str, text: str, **more: Any) -> DataFlag:
    return DataFlag(names.split(), metavar="string", help=text, multiple=True, type=click.UNPROCESSED, **more)


def _run(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    if words[0].partition("://")[0].lower() in ("mqtt", "mqtts"):
        from svc.cli.curl.mqtt.plan import MqttPlan

        subscription = MqttPlan.read(words[0], values, options, ctx.obj.environ)
        from svc.cli.curl.mqtt.run import run_subscription

        return run_subscription(subscription, ctx.obj)
    from svc.cli.curl.plan import CurlPlan

    plan = CurlPlan.read(words[0], values, options, ctx.obj)
    from svc.cli.curl.run import run_curl

    return run_curl(plan, ctx.obj)


_FLAGS = (
    _data_flag("-d --data", "request body, @FILE reads a file, @- standard input; repeatable; GET becomes POST"),
    _data_flag("--data-binary", "as --data, but line ends of a file are kept", expose_value=False),
    _data_flag("--data-raw", "as --data, but @ is an ordinary character", expose_value=False),
    bool_flag("--detailed-exit-codes", "exit with 1 to 4 for what failed (SVC_DETAILED_EXIT_CODES)", default=None),
    value_flag("--expect-id", "SPIFFE-ID", "the server's identity; repeatable (SVC_EXPECT_ID)", multiple=True),
    value_flag("-H --header", "string", "extra request header; repeatable", multiple=True),
    value_flag("--inject-faults", "strings", "simulate: no-workload-statement, bad-workload-statement", multiple=True),
    ISSUER_FLAG,
    value_flag(
        "--max-body",
        "size",
        "largest body kept back until it is verified",
        type=Parsed(_size, "a size such as 16MiB"),
        shown_default="1GiB",
    ),
    value_flag(
        "-m --max-time",
        "seconds",
        "longest time for everything: seconds, or a duration such as 500ms",
        type=Parsed(_duration, "seconds, or a duration such as 500ms, 10s or 5m"),
    ),
    value_flag(
        "-n --notarization-level",
        "string",
        "workload, logRequest or signRequest",
        type=OneOf("workload", "logRequest", "signRequest"),
        default="workload",
    ),
    value_flag(
        "-o --output",
        "string",
        "text, or json for one object",
        type=OneOf("text", "json"),
        default="text",
        advice="; > FILE writes the body to a file",
    ),
    value_flag("--pq-bundle", "FILE", "post-quantum roots (SVC_PQ_BUNDLE)"),
    bool_flag("--print-receipt", "pretty-print the signed request receipt when validated (signRequest only)"),
    bool_flag("--print-workload", "pretty-print the workload identity statement when validated"),
    PROFILE_FLAG,
    value_flag("-X --request", "string", "request method", default="GET"),
    bool_flag("--require-pinned-id", "refuse to run without --expect-id"),
    value_flag("--save-evidence", "FILE", "write what was verified to a new file"),
    bool_flag("-i --show-headers", "print response headers"),
    bool_flag("-s --silent", "suppress response body"),
    bool_flag("--validate", "require workload statement verification", default=True),
    bool_flag("--verify", "with the URL of a broker: verify the artifacts that are printed"),
)

#: Hints for flags of curl that this command does not have.
CURL_FLAGS: Final = {
    "-A --user-agent": "use -H 'User-Agent: ...'",
    "-b --cookie": "use -H 'Cookie: name=value'",
    "-c --cookie-jar": "cookies are not kept; -i shows Set-Cookie, -H 'Cookie: name=value' sends one",
    "--compressed": "use -H 'Accept-Encoding: gzip' and | gunzip",
    "--connect-timeout": "a connection is waited for 10 s at most; --max-time limits everything",
    "-D --dump-header": "-i prints status line and headers before the body, -i -s prints them alone",
    "-E --cacert --capath --cert --key": "certificates, keys and roots come from the SPIFFE Workload API;"
    " --spiffe-socket-path names its socket",
    "-e --referer": "use -H 'Referer: ...'",
    "-f --fail --fail-with-body": "--detailed-exit-codes exits with 4 for an answer of 400 or above",
    "-F --form --form-string": "prepare the form as a file and use --data-binary @FILE"
    " -H 'Content-Type: multipart/form-data; boundary=...'",
    "-G --get --url-query": "write the data into the URL: 'https://host/path?name=value'",
    "-0 --http1.0 --http1.1 --http2 --http2-prior-knowledge --http3": "leave it out: requests are always HTTP/1.1",
    "-I --head": "use -X HEAD -i",
    "--json": "use -d: a JSON object or array gets Content-Type: application/json",
    "-k --insecure": "a server is always verified by its SPIFFE ID, which --expect-id names;"
    " --validate=false accepts an answer without workload statement",
    "-L --location": "redirects are not followed: -i shows Location, request that URL",
    "-N --no-buffer": "a body is printed once it is verified; with --validate=false it is printed while it arrives",
    "-O --remote-name": "> FILE writes the body to a file",
    "-r --range": "use -H 'Range: bytes=0-99'",
    "--resolve --connect-to": "put the address into the URL and the name into -H 'Host: name':"
    " a server is verified by its SPIFFE ID, not by its name",
    "--retry": "nothing is sent twice: run the command again",
    "-S --show-error": "leave it out: errors are always shown, and -s leaves out the body here",
    "-T --upload-file": "use -X PUT --data-binary @FILE",
    "-1 --tlsv1 --tlsv1.2 --tlsv1.3": "leave it out: connections are always TLS 1.3",
    "-u --user": "use -H 'Authorization: Basic ...', with the base64 of name:password",
    "-w --write-out": "-o json prints status, headers and what was verified as one JSON object",
    "-x --proxy --noproxy": "connections go directly to the host of the URL, never through an HTTP proxy",
    "--data-urlencode": "encode the value and use -d 'name=value'",
}
command = SvcCommand(
    "curl",
    params=[*_FLAGS, Arguments("words", "<url>", minimum=1, maximum=1, noun="URL")],
    callback=click.pass_context(_run),
    help="""
    Send one HTTP request and check the workload identity statement and, with -n signRequest, the signed receipt that
    the protected service returns. Nothing of the body reaches standard output before it is verified.

    With mqtt://host:port or mqtts://host:port, and --print-workload, --print-receipt or both, print the statements and
    receipts that are published at a broker, until the connection closes or is interrupted. Nothing of them is verified
    without --verify. User name and password are in the URL, or in SVC_MQTT_USERNAME and SVC_MQTT_PASSWORD.
    """,
    epilog="""
Examples:
  svc curl https://api.example.org:8443/
  svc curl -n signRequest --print-workload --print-receipt -i https://api.example.org:8443/
  svc curl --expect-id spiffe://example.org/ns/pay/sa/api -d '{"amount": 5}' https://api.example.org:8443/v1/pay
  svc curl --print-receipt --verify mqtts://broker.example.org:8883
""",
    add_help_option=False,
)
command.unknown_flag_hints = {name: hint for names, hint in CURL_FLAGS.items() for name in names.split()}
