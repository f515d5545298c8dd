"""The command ``svc install``: its flags; what it does is in the modules beside this one."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from svc.checks.variant import VARIANTS
from svc.cli.cluster import CLUSTER_FLAGS, CLUSTER_HELP
from svc.cli.flags import Arguments, OneOf, Parsed, bool_flag, value_flag
from svc.cli.globals import GlobalOptions, Invocation, SvcCommand, global_options
from svc.cli.install.modes import Mode, parse_platforms, parse_timeout, registry_flags, select

_DEFAULT_TIMEOUT: Final = "10m0s"


def _run(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options, invocation = global_options(ctx), ctx.obj
    given = {param.long_name: values[param.name] for param in ctx.command.params if hasattr(param, "long_name")}
    mode = select(given, terminal=_terminal(invocation))
    if mode is None:
        from svc.cli.install.wizard import ask

        given, mode = ask(given, invocation)
    return run(mode, given, options, invocation)


def run(mode: Mode, given: dict[str, Any], options: GlobalOptions, invocation: Invocation) -> int:
    """Carry out a mode with flags that were checked; returns the exit status."""
    from svc.cli.cluster import Choice, choose
    from svc.cli.install.request import Request
    from svc.cli.install.rollout import Wishes

    environ, dry_run = invocation.environ, bool(given.get("--dry-run"))
    if mode is Mode.DOWNLOAD:
        choice = Choice("", "", environ)
    else:
        named = (given.get("--kubeconfig") or "", given.get("--context") or "")
        choice = choose(*named, environ, changes=not dry_run)
    version = given.get("--version") or ""
    wishes = Wishes(
        choice,
        [
            word
            for flag in ("--values", "--set", "--set-string")
            for text in given.get(flag) or ()
            for word in (flag, text)
        ],
        given.get("--kubernetes-variant") or "",
        bool(given.get("--upgrade")),
        given.get("--timeout") or parse_timeout(_DEFAULT_TIMEOUT),
        version not in ("", "latest"),
        dry_run,
    )
    request = Request(
        given.get("--file") or "",
        version,
        given.get("--platform") or (),
        given.get("--release-key") or (),
        registry_flags(given, "qhx"),
        registry_flags(given, "mirror"),
        wishes,
    )
    if mode is Mode.ONLINE:
        from svc.cli.install.online import run_online

        return run_online(request, options, invocation)
    if mode is Mode.DOWNLOAD:
        from svc.cli.install.download import run_download

        return run_download(request, options, invocation)
    from svc.cli.install.offline import run_offline

    return run_offline(request, options, invocation)


def _terminal(invocation: Invocation) -> bool:
    """Whether questions can be asked: both standard input and standard output are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and invocation.console.terminal


command = SvcCommand(
    "install",
    params=[
        bool_flag("--online", "install the release of a registry"),
        bool_flag("--download", "download a release as a package, for a cluster that reaches no registry"),
        bool_flag("--offline-install", "install a package, with its images in a mirror"),
        value_flag("-f --file", "path", "the package: what --download writes, or --offline-install reads"),
        bool_flag("-n --dry-run", "show what would be done, and change neither cluster nor mirror nor disk"),
        *CLUSTER_FLAGS,
        value_flag("-V --version", "string", "the release, or latest", shown_default="latest"),
        bool_flag("--upgrade", "upgrade the release svc-core that is there"),
        value_flag(
            "--timeout",
            "duration",
            "how long Helm waits until all is ready",
            type=Parsed(parse_timeout, "a duration such as 10m0s or 90s, from 1s to 24h"),
            shown_default=_DEFAULT_TIMEOUT,
        ),
        value_flag(
            "--platform",
            "string",
            "platforms with commas between, such as linux/amd64,linux/arm64",
            type=Parsed(parse_platforms, "platforms such as linux/amd64,linux/arm64, each once"),
            shown_default="all of the release",
        ),
        value_flag(
            "--kubernetes-variant",
            "string",
            "eks, kind, microk8s, openshift or unknown",
            type=OneOf(*VARIANTS),
            shown_default="what the cluster says",
        ),
        value_flag("--set", "NAME=VALUE", "a value of the chart; repeatable", multiple=True),
        value_flag("--set-string", "NAME=VALUE", "a value of the chart that is a text; repeatable", multiple=True),
        value_flag("--values", "path", "a YAML file with values of the chart; repeatable", multiple=True),
        value_flag("--release-key", "path", "public key of the vendor (SVC_RELEASE_KEYS); repeatable", multiple=True),
        value_flag("-R --qhx-registry", "string", "registry of releases: host[:port][/prefix] (SVC_REGISTRY)"),
        value_flag("-U --qhx-username", "string", "its user (SVC_CUSTOMER_DEPLOYMENT_USERNAME)"),
        value_flag("-P --qhx-password", "string", "its password, - for stdin (SVC_CUSTOMER_DEPLOYMENT_PASSWORD)"),
        value_flag("--qhx-ca-file", "path", "PEM file of the authorities that are trusted for it, and no others"),
        bool_flag("--qhx-insecure", "reach it by HTTP"),
        value_flag("-r --mirror-registry", "string", "registry that the cluster reaches: host[:port][/prefix]"),
        value_flag("-u --mirror-username", "string", "its user"),
        value_flag("-p --mirror-password", "string", "its password, - for stdin"),
        value_flag("--mirror-ca-file", "path", "PEM file of the authorities that are trusted for it, and no others"),
        bool_flag("-I --mirror-insecure", "reach it by HTTP"),
        Arguments("words", "", minimum=0, maximum=0, noun="arguments"),
    ],
    callback=click.pass_context(_run),
    help=f"""
    Install the platform on a Kubernetes cluster, or upgrade it. What is installed is a release that the vendor signed:
    nothing of it is used before its signature has been verified.

    --online takes the release of a registry. --download writes it to a file, and --offline-install takes that file to
    a cluster: its images are pushed to a mirror, a registry that the nodes reach. Without any of them questions are
    asked, on a terminal.

    Before anything is changed the cluster is checked, as by "svc check --pre", and everything is rendered. Values of
    the chart are those of Helm, in its spelling; "svc files chart" prints the folder with values.yaml. An upgrade keeps
    those that were set before. Helm 3 or 4 is needed, as SVC_HELM or in PATH.
{CLUSTER_HELP}
    A password without a flag or variable is that of ~/.docker/config.json and its like, credential helpers included.
    """,
    epilog="""
Examples:
  svc install --online -R registry.example.com/acme --set trustDomain=prod.example.org
  svc install --online --upgrade --version 1.4.2 --dry-run
  svc install --download -f release.tar --platform linux/amd64
  svc install --offline-install -f release.tar -r mirror.example.org/svc --set trustDomain=prod.example.org
""",
    add_help_option=False,
)
