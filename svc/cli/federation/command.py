"""The commands below ``svc federation``: their flags; what they do is in the modules beside this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from svc.cli.cluster import CLUSTER_FLAGS, CLUSTER_HELP
from svc.cli.errors import CommandFailed, UsageRefused
from svc.cli.flags import Arguments, OneOf, bool_flag, help_suggestion, value_flag
from svc.cli.globals import SvcCommand, SvcGroup, global_options, run_group
from svc.errors import SvcError, printable

if TYPE_CHECKING:
    from svc.cli.federation.side import Side

_WITHOUT_CLUSTER: Final = "without a cluster: --authority unix:///PATH names an svc-authority on this machine"


def _side(values: Mapping[str, Any], ctx: click.Context, *, changes: bool) -> Side:
    """The own trust domain that the flags name: that of an authority, else that of a cluster."""
    if values["authority"]:
        for flag in _CLUSTER_ONLY:
            if values.get(flag.name or ""):
                problem = f"{flag.long_name} is for a cluster, and --authority names an authority"
                raise UsageRefused(problem, "leave one of both out")
        from svc.cli.federation.authority import AuthoritySide
        from svc.workload.errors import SocketAddressInvalid

        try:
            return AuthoritySide(values["authority"])
        except SocketAddressInvalid as error:
            problem = f"--authority: {printable(values['authority'])} is no Unix socket"
            raise UsageRefused(problem, "give --authority unix:///PATH") from error
    from svc.cli.cluster import choose
    from svc.cli.federation.peers import check_name
    from svc.cli.federation.selected import SelectedCluster
    from svc.cli.federation.side import parse_endpoint

    host, name = values.get("endpoint_host"), values.get("name")
    if name is not None:
        check_name(name)
    return SelectedCluster(
        choose(values["kubeconfig"], values["context"], ctx.obj.environ, changes=changes),
        ctx.obj.now(),
        endpoint=None if host is None else parse_endpoint(host),
        name=name or "",
        tunnel=bool(values.get("tunnel")),
    )


@contextmanager
def _authority_named() -> Iterator[None]:
    """Where there is no cluster, name the flag for an authority, which needs none."""
    try:
        yield
    except SvcError as error:
        if error.reason != "kubeconfig_unusable":
            raise
        raise CommandFailed(error, error.exit_status, remarks=(_WITHOUT_CLUSTER,)) from error


def _required_file(values: Mapping[str, Any], ctx: click.Context) -> str:
    if not values["file"]:
        raise UsageRefused("flag --file is missing", help_suggestion(ctx))
    return str(values["file"])


def _run_inspect(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    path = _required_file(values, ctx)
    from svc.cli.federation.inspect import run_inspect

    return run_inspect(path, values["full"], ctx.obj)


def _run_export(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    path = _required_file(values, ctx)
    from svc.cli.federation.exchange import run_export

    with _authority_named():
        return run_export(_side(values, ctx, changes=False), path, ctx.obj)


def _run_import(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    path = _required_file(values, ctx)
    from svc.cli.federation.exchange import run_import

    with _authority_named():
        return run_import(
            _side(values, ctx, changes=True),
            path,
            ctx.obj,
            expected=values["expect_fingerprint"] or "",
            endpoint=values["m2m_endpoint"] or "",
            rebootstrap=values["rebootstrap"],
            force=values["force_rebootstrap"],
        )


def _run_info(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.federation.exchange import run_info

    with _authority_named():
        return run_info(_side(values, ctx, changes=False), values["output"], ctx.obj)


def _run_connect(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.federation.connect import run_connect

    reference = words[0] if words else ""
    if words and not reference:
        raise UsageRefused("the reference is empty", help_suggestion(ctx))
    return run_connect(reference, values["kubeconfig"], values["context"], values["unidirectional"], ctx.obj)


def _nothing_else() -> Arguments:
    return Arguments("words", "", minimum=0, maximum=0, noun="arguments")


_ENDPOINT_HOST: Final = value_flag(
    "--endpoint-host", "host[:port]", "where peers reach the manager; by default the NodePort is found"
)
_NAME: Final = value_flag("--name", "string", "the name of the SvcForeignCluster; by default the peer's trust domain")
_TUNNEL: Final = bool_flag("--tunnel", "ask the manager through kubectl port-forward, not the status of the SvcCluster")
#: Where the own trust domain is.
_SIDE_FLAGS: Final = (
    *CLUSTER_FLAGS,
    value_flag("--authority", "string", "the federation.socket of an svc-authority on this machine, as unix:///PATH"),
)
#: What an authority has no part in.
_CLUSTER_ONLY: Final = (*CLUSTER_FLAGS, _ENDPOINT_HOST, _NAME, _TUNNEL)
_SIDE_HELP: Final = f"""{CLUSTER_HELP.rstrip()}
    --authority names an authority without a cluster instead.
"""
_inspect_package_command = SvcCommand(
    "bootstrap-package",
    params=[
        value_flag("-f --file", "FILE", "the bootstrap package; required"),
        bool_flag("--full", "certificates, long keys and signatures in full, which are elided otherwise"),
        _nothing_else(),
    ],
    callback=click.pass_context(_run_inspect),
    short_help="print what is in a bootstrap package, and verify its signatures",
    help="""
    Print the content of a bootstrap package as YAML, its fingerprint in three spellings, and whether its signatures are
    valid. Only the file is read; no cluster and no network are needed.

    Valid signatures prove that the package was not changed since the holder of its keys signed it. Whose keys they are
    is proved by the fingerprint alone: compare it with what the administrator of the peer reads aloud.

    The exit status is 1 where a signature is not valid, or the file is no bootstrap package. A package that has expired
    is printed with its state, and the exit status is 0.
    """,
    epilog="""
Examples:
  svc federation inspect bootstrap-package -f partner.json
  svc federation inspect bootstrap-package -f partner.json --full
""",
    add_help_option=False,
)
_inspect_command = SvcGroup(
    "inspect",
    callback=click.pass_context(run_group),
    commands=[_inspect_package_command],
    invoke_without_command=True,
    short_help="look at what another trust domain has sent",
    help="""
    Look at what another trust domain has sent, before anything of it is trusted.
    """,
    add_help_option=False,
)
_export_package_command = SvcCommand(
    "bootstrap-package",
    params=[
        value_flag("-f --file", "FILE", "where it is written; required"),
        *_SIDE_FLAGS,
        _ENDPOINT_HOST,
        _nothing_else(),
    ],
    callback=click.pass_context(_run_export),
    short_help="write the bootstrap package of the own trust domain",
    help=f"""
    Write the bootstrap package of the own trust domain to a file, and print its fingerprint in three spellings. The
    file has no secret; whoever imports it has to know the fingerprint from you, on another way than the file.

    A file that is there is replaced only where it is an earlier package of the same trust domain, and atomically.

    The package of a cluster is that of the status of its SvcCluster. --endpoint-host says where peers reach its
    manager; nobody signs that. Without a port it has that of the NodePort.
{_SIDE_HELP}    """,
    epilog="""
Examples:
  svc federation export bootstrap-package -f here.json --context prod
  svc federation export bootstrap-package -f here.json --endpoint-host m2m.prod.example.org:443
  svc federation export bootstrap-package -f here.json --authority unix:///run/svc/federation.sock
""",
    add_help_option=False,
)
_export_command = SvcGroup(
    "export",
    callback=click.pass_context(run_group),
    commands=[_export_package_command],
    invoke_without_command=True,
    short_help="make what another trust domain needs",
    help="""
    Make what another trust domain needs to federate with the own one.
    """,
    add_help_option=False,
)
_import_package_command = SvcCommand(
    "bootstrap-package",
    params=[
        value_flag("-f --file", "FILE", "the bootstrap package of the peer; required"),
        *_SIDE_FLAGS,
        value_flag(
            "--expect-fingerprint",
            "string",
            "refuse a package with another one: a fingerprint in any spelling, or a whole federation reference",
        ),
        bool_flag("--rebootstrap", "replace a relationship that does not work any more"),
        bool_flag("--force-rebootstrap", "replace the relationship even if it works"),
        value_flag(
            "--m2m-endpoint", "string", "where the peer can be reached, host[:port]; https:// before it is removed"
        ),
        _NAME,
        _nothing_else(),
    ],
    callback=click.pass_context(_run_import),
    short_help="trust the trust domain of a bootstrap package",
    help=f"""
    Verify a bootstrap package, pin its federation roots, and trust the roots of its trust domain from now on. Whose
    package it is, is proved by the fingerprint alone: let the administrator of the peer read it aloud, and give it with
    --expect-fingerprint.

    A package that follows the pinned one renews it: one of the same roots that was signed later, or the first of their
    successors. Any other one is refused, until --rebootstrap or --force-rebootstrap says that the peer has begun anew.
    Where anything fails, nothing has changed.

    In a cluster a SvcForeignCluster is made, and its manager pins the package; its condition Ready says what came of
    it. Its name is the trust domain with - for _, unless --name gives another one.
{_SIDE_HELP}    """,
    epilog="""
Examples:
  svc federation import bootstrap-package -f partner.json --context prod --m2m-endpoint m2m.partner.example.org:443
  svc federation import bootstrap-package -f partner.json --authority unix:///run/svc/federation.sock \\
    --expect-fingerprint "12340 56327 06666 73297 60060 39092 34705 28319 83054 84163 35946 55634"
""",
    add_help_option=False,
)
_import_command = SvcGroup(
    "import",
    callback=click.pass_context(run_group),
    commands=[_import_package_command],
    invoke_without_command=True,
    short_help="trust another trust domain by what it has sent",
    help="""
    Trust another trust domain by what it has sent.
    """,
    add_help_option=False,
)
_info_command = SvcCommand(
    "info",
    params=[
        *_SIDE_FLAGS,
        _ENDPOINT_HOST,
        _TUNNEL,
        value_flag(
            "-o --output",
            "string",
            "text for the reference alone, or json or yaml for everything, the peers included",
            type=OneOf("text", "json", "yaml"),
            default="text",
        ),
        _nothing_else(),
    ],
    callback=click.pass_context(_run_info),
    short_help="print the federation reference of the own trust domain",
    help=f"""
    Print the federation reference of the own trust domain, one line that names it and authenticates its packages.
    The administrator of a peer gives it to "svc federation connect".
{_SIDE_HELP}    """,
    epilog="""
Examples:
  svc federation info --context prod
  svc federation info --context prod --endpoint-host m2m.prod.example.org:443
  svc federation info --context prod --tunnel -o yaml
  svc federation info --authority unix:///run/svc/federation.sock
  svc federation info --authority unix:///run/svc/federation.sock -o yaml
""",
    add_help_option=False,
)
_connect_command = SvcCommand(
    "connect",
    params=[
        value_flag("-K --kubeconfig", "path", "the kubeconfig of a cluster; twice for two clusters", multiple=True),
        value_flag(
            "--context",
            "string",
            "a context of the kubeconfig at the same position; twice for two clusters of one kubeconfig",
            multiple=True,
        ),
        bool_flag("--unidirectional", "of two clusters, let the first trust the second and not the other way round"),
        Arguments("words", "[reference]", minimum=0, maximum=1, noun="reference"),
    ],
    callback=click.pass_context(_run_connect),
    short_help="let clusters trust each other",
    help="""
    Let two clusters trust each other, or let one cluster trust the peer that a federation reference names.

    Of two clusters the packages are read through "kubectl port-forward" and compared with the fingerprints that the API
    servers have. Both sides are printed with their trust domains and fingerprints before anything is written. The same
    cluster twice, and two clusters of one trust domain, are refused.

    What is written is a SvcForeignCluster in each cluster that is to trust the other one. The managers fetch and verify
    the packages themselves: the command that waits for that is printed. Where the second cluster refuses what the first
    one has accepted, the answer says so, and the same command again writes what is missing.
    """,
    epilog="""
Examples:
  svc federation connect --context prod "$REFERENCE"
  svc federation connect -K prod.kubeconfig -K partner.kubeconfig
  svc federation connect --context prod --context partner --unidirectional
""",
    add_help_option=False,
)
command = SvcGroup(
    "federation",
    callback=click.pass_context(run_group),
    commands=[_connect_command, _export_command, _import_command, _info_command, _inspect_command],
    invoke_without_command=True,
    help="""
    Federate with other trust domains, by signed packages and a fingerprint that people compare.
    """,
    add_help_option=False,
)
