"""The command ``svc files``: which files for other programs are installed with ``svc``, where, and how each is used."""

from __future__ import annotations

import json
from typing import Final

import click

from svc.cli.flags import Arguments, OneOf, value_flag
from svc.cli.globals import SvcCommand, global_options
from svc.data import FOLDER

#: Kind of files, which is the name of their folder: what they are for, and how they are used from there.
KINDS: Final[dict[str, tuple[str, str]]] = {
    "admission": (
        "a policy of Kubernetes that keeps objects in their compartment",
        "kubectl apply --server-side -f {path}",
    ),
    "alerts": ("alert rules for Prometheus", "in prometheus.yml: rule_files: [{path}/alerts.yaml]"),
    "chart": (
        "the Helm chart svc-core, which installs the platform on a cluster of Kubernetes",
        "helm install svc-core {path} --namespace svc-system --create-namespace --values VALUES.yaml",
    ),
    "completion": (
        "completion for bash, zsh (_svc) and fish",
        "install -D -m 644 {path}/svc.bash /usr/local/share/bash-completion/completions/svc",
    ),
    "crds": (
        "custom resources of Kubernetes, which svc in a cluster needs",
        "kubectl apply --server-side -f {path}",
    ),
    "dashboards": (
        "dashboards of svc-proxy and svc-broker for Grafana",
        "Dashboards > New > Import: {path}/svc-proxy.json, or a provisioning provider with options.path: {path}",
    ),
    "man": ("man pages of svc and its commands", "man -M {path} svc-curl, or: cp -r {path}/man1 /usr/local/share/man/"),
    "schemas": (
        "JSON Schemas of the configuration files and of log records",
        "first line of a file, for editors: # yaml-language-server: $schema={path}/proxy.config.json",
    ),
    "units": (
        "systemd units of the daemons, where they are installed in /opt/svc/.venv",
        "install -m 644 {path}/*.service /etc/systemd/system/",
    ),
}


def _run(ctx: click.Context, words: tuple[str, ...], output: str) -> None:
    global_options(ctx)
    console = ctx.obj.console
    if output == "text" and words:
        console.write_text(f"{FOLDER / words[0]}\n")
        return
    rows = {kind: (str(FOLDER / kind), *KINDS[kind]) for kind in words or KINDS}
    if output == "json":
        document = {
            kind: {"path": path, "description": description, "use": use.format(path=path)}
            for kind, (path, description, use) in rows.items()
        }
        console.write_text(json.dumps(document) + "\n")
        return
    width = max(map(len, rows)) + 3
    for kind, (path, description, use) in rows.items():
        console.write_text(f"{kind:{width}}{path}\n{'':{width}}{description}\n{'':{width}}{use.format(path=path)}\n")


command = SvcCommand(
    "files",
    params=[
        value_flag("-o --output", "string", "text, or json for one object", type=OneOf("text", "json"), default="text"),
        Arguments("words", "[kind]", minimum=0, maximum=1, noun="kind", choices=tuple(KINDS)),
    ],
    callback=click.pass_context(_run),
    help=f"""
    Print where the files are that are installed with svc for other programs, what each kind is for and how it is used.
    The kinds are {", ".join(KINDS)}.

    With a kind, only its folder is printed.
    """,
    epilog="""
Examples:
  svc files
  install -m 644 $(svc files units)/*.service /etc/systemd/system/
  man -M $(svc files man) svc-curl
  svc files -o json
""",
    add_help_option=False,
)
