"""Brings a release onto a cluster: what is there, whether the cluster is ready, the values, and the run of Helm."""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from svc.checks.model import Level, Results, make_checks
from svc.checks.variant import UNKNOWN, variant_of
from svc.cli.cluster import Choice, Cluster, cluster_named, on_cluster
from svc.cli.documents import read_file
from svc.cli.errors import CommandFailed, UsageRefused
from svc.cli.globals import Invocation
from svc.cli.output import Console
from svc.errors import SvcError, printable
from svc.install.deployment.chartfile import Chart, check_trust_domain, check_values, known_values, read_chart
from svc.install.deployment.errors import DeploymentError
from svc.install.deployment.existing import Existing, Step, decide, older
from svc.install.deployment.helm import Helm, find_helm
from svc.naming import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from svc.checks.facts import ClusterFacts
    from svc.install.release.manifests import Contents
    from svc.kube.client import Client

#: Octets of a file of values.
_MOST: Final = 1 << 20
#: What a preflight finds where an installation is upgraded, or makes itself.
_EXPECTED: Final = frozenset({"there", "installed"})
_MADE: Final = frozenset({"missing", "not_labelled"})


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    What the flags say of the cluster.

    Args:
        values: the flags of Helm for values, such as ``--set``, ``a=1``.
        variant: empty where it is to be found out.
        timeout: seconds.
        named: whether the version was named.
    """

    choice: Choice
    values: Sequence[str] = ()
    variant: str = ""
    upgrade: bool = False
    timeout: float = 600.0
    named: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """
    A release that was verified.

    Args:
        chart: the octets of its chart.
        registry: where its images are: ``host[:port]/prefix``.
        images: what the chart has to know of each image, by the name of its value.
        credentials: user and password with which nodes pull; None where they need none.
        platforms: those that it has images for.
        helm: the path of a Helm that came with it; empty for none.
        upgrade_from: the oldest version that can be upgraded to it; empty for any.
        min_kubernetes: the oldest version of Kubernetes on which it runs, such as ``1.33``; empty for any.
    """

    version: str
    chart: bytes
    registry: str
    images: Mapping[str, Mapping[str, str]]
    credentials: tuple[str, str] | None = None
    platforms: Sequence[str] = ()
    helm: str = ""
    upgrade_from: str = ""
    min_kubernetes: str = ""


class Seen(NamedTuple):
    """What was read of the cluster."""

    facts: ClusterFacts
    existing: Existing | None


def images_of(contents: Contents) -> dict[str, dict[str, str]]:
    """Return what the chart has to know of the images of a release."""
    found = {}
    for each in contents.images:
        first, *others = each.image.name.split("-")
        name = first + "".join(word.capitalize() for word in others)
        found[name] = {"repository": each.image.repository, "digest": each.index.blob.content.digest}
    return found


def roll_out(
    release: Release,
    wishes: Wishes,
    invocation: Invocation,
    *,
    plan: Sequence[str] = (),
    before: Callable[[], None] | None = None,
) -> int:
    """
    Install or upgrade a release, or print what would be applied; returns the exit status.

    Nothing is written before everything has been checked and rendered.

    Args:
        plan: lines on what ``before`` does.
        before: is called before anything is written on the cluster.

    Raises:
        DeploymentError: nothing was done, or Helm failed.
        CommandFailed: the cluster is not ready, or refused something.
    """
    console = invocation.console
    chart = read_chart(release.chart, f"the chart of release {release.version}")
    program = find_helm(invocation.environ, release.helm)
    local = Helm(program, invocation.environ)
    wanted = _values(local, wishes.values)
    check_values(wanted, chart)
    if wishes.dry_run and wishes.variant and not cluster_named(wishes.choice):
        return _render_alone(release, chart, wanted, wishes, local, plan, console)
    seen, cluster = on_cluster(lambda client: _seen(client, invocation), wishes.choice)
    existing = seen.existing
    step = decide(
        *(existing, chart.version, invocation.now()),
        upgrade=wishes.upgrade,
        named=wishes.named,
        timeout=wishes.timeout,
        oldest=release.upgrade_from,
    )
    _check_ready(seen.facts, existing, release, cluster, invocation)
    variant = wishes.variant or variant_of(seen.facts)
    kept, gone = ({}, []) if existing is None or step is Step.INSTALL else known_values(existing.values, chart)
    check_trust_domain(wanted, kept)
    for path in gone:
        console.warn(f"the value {printable(path)} of the release that is there is left out: the chart has none")
    kubeconfig = wishes.choice.kubeconfig or wishes.choice.environ.get("KUBECONFIG", "")
    helm = Helm(program, invocation.environ, kubeconfig, cluster.context)
    upgrade = step is not Step.INSTALL
    with TemporaryDirectory(prefix="svc-install-") as folder:
        files = _written(folder, [kept, _owned(release, chart, variant), wanted], release.chart)
        manifests = helm.rendered(files[0], files[1:], upgrade=upgrade, cluster=True)
        for line in (*_plan(release, wishes, seen, step, variant), *plan, f"cluster: {cluster}"):
            console.write_stderr(line)
        if wishes.dry_run:
            console.write_text(manifests)
            return 0
        if before is not None:
            before()
        on_cluster(lambda client: _prepare(client, release, seen), wishes.choice)
        remarks: list[str] = []
        try:
            if step is Step.ROLL_BACK_AND_UPGRADE and existing is not None:
                helm.roll_back(existing.deployed, wishes.timeout)
            helm.deploy(files[0], files[1:], wishes.timeout)
        except DeploymentError as error:
            try:
                remarks += _unready(wishes.choice, invocation)
            finally:
                if upgrade and existing is not None:
                    remarks.append(_roll_back(helm, existing, wishes, console))
            raise CommandFailed(error, remarks=tuple(remarks)) from error
    done = "upgraded to" if upgrade else "installed:"
    console.write_text(f"svc-core {done} {release.version}, {cluster}\n")
    if not upgrade:
        console.write_text(_next(release))
    return 0


def _next(release: Release) -> str:
    """What to do after an installation, as commands."""
    from svc.install.deployment.cluster import COPY_SECRET

    lines = ["next: svc check, and for each namespace whose pods get the proxy:"]
    lines.append("  kubectl label namespace NAME svc.internal/injection=enabled")
    if release.credentials is not None:
        lines.append(f"  {COPY_SECRET}")
    return "".join(f"{line}\n" for line in lines)


def _render_alone(
    release: Release,
    chart: Chart,
    wanted: Mapping[str, Any],
    wishes: Wishes,
    helm: Helm,
    plan: Sequence[str],
    console: Console,
) -> int:
    """Render an installation without a cluster."""
    check_trust_domain(wanted)
    with TemporaryDirectory(prefix="svc-install-") as folder:
        files = _written(folder, [_owned(release, chart, wishes.variant), wanted], release.chart)
        manifests = helm.rendered(files[0], files[1:], upgrade=False, cluster=False)
    for line in (f"install: svc-core {release.version} in {DEFAULT_NAMESPACE}", f"images: {release.registry}", *plan):
        console.write_stderr(line)
    console.write_stderr("no cluster is named: what is there was not looked at")
    console.write_text(manifests)
    return 0


def _values(helm: Helm, flags: Sequence[str]) -> dict[str, Any]:
    """Read files of values here, so that none is fetched, and that standard input is read once."""
    with TemporaryDirectory(prefix="svc-values-") as folder:
        words: list[str] = []
        for number, (flag, text) in enumerate(zip(flags[::2], flags[1::2], strict=True)):
            if flag == "--values":
                if urllib.parse.urlsplit(text).scheme in ("http", "https", "oci"):
                    raise UsageRefused(f"--values does not fetch {printable(text)}", "download it, and name the file")
                copy = Path(folder, f"{number}.yaml")
                copy.write_bytes(read_file(text, _MOST))
                text = str(copy)
            words += [flag, text]
        return helm.values(words)


async def _seen(client: Client, invocation: Invocation) -> Seen:
    from svc.checks.reading import read_preflight
    from svc.install.deployment.cluster import existing_release

    return Seen(await read_preflight(client, invocation.now), await existing_release(client))


async def _prepare(client: Client, release: Release, seen: Seen) -> None:
    from svc.install.deployment.cluster import make_namespace, make_pull_secret

    if not _namespace_there(seen.facts):
        await make_namespace(client)
    if release.credentials is not None:
        await make_pull_secret(client, release.registry.partition("/")[0], *release.credentials)


def _namespace_there(facts: ClusterFacts) -> bool:
    from svc.kube.kinds import NAMESPACES

    return facts.named(NAMESPACES, DEFAULT_NAMESPACE) is not None


def _check_ready(
    facts: ClusterFacts, existing: Existing | None, release: Release, cluster: Cluster, invocation: Invocation
) -> None:
    from svc.checks.preflight import CHECKS

    console = invocation.console
    results = make_checks(CHECKS, facts)
    expected = _MADE | (_EXPECTED if existing is not None else frozenset())
    for result in results.results:
        for each in result.findings:
            if each.level is Level.WARNING and each.code not in expected:
                console.warn(f"{result.name}: {each.sentence} ({each.code}); {each.remedy}")
    for name in _without_images(facts, release.platforms):
        console.warn(f"nodes: the release has no images for the node {printable(name)}")
    server = None if isinstance(facts.server, SvcError) else str(facts.server.version.get("gitVersion", ""))
    if server is not None and older(server.partition("-")[0], f"{release.min_kubernetes}.0"):
        raise DeploymentError("kubernetes_too_old", version=server, oldest=release.min_kubernetes)
    if results.level is Level.FAILED:
        raise CommandFailed(
            DeploymentError("cluster_not_ready", cluster=str(cluster)),
            remarks=tuple(_failures(results, "svc check --pre")),
        )


def _failures(results: Results, command: str) -> list[str]:
    lines = [
        f"{result.name}: {each.sentence} ({each.code}): {each.remedy}"
        for result in results.results
        for each in result.findings
        if each.level is Level.FAILED
    ]
    return lines[:20] + ([f"{command} shows {len(lines) - 20} more"] if len(lines) > 20 else [])


def _without_images(facts: ClusterFacts, platforms: Sequence[str]) -> list[str]:
    from svc.kube.kinds import NODES

    nodes = facts.objects[NODES]
    if not platforms or isinstance(nodes, SvcError):
        return []
    about = {node["metadata"]["name"]: (node.get("status") or {}).get("nodeInfo") or {} for node in nodes}
    return [
        name
        for name, each in about.items()
        if f"{each.get('operatingSystem')}/{each.get('architecture')}" not in platforms
    ]


def _owned(release: Release, chart: Chart, variant: str) -> dict[str, Any]:
    """The values that follow from the release and the cluster."""
    from svc.install.deployment.cluster import PULL_SECRET

    images: dict[str, Any] = {"registry": release.registry, **release.images}
    if release.credentials is not None:
        images["pullSecrets"] = [PULL_SECRET]
    found: dict[str, Any] = {"images": images}
    if "kubernetesVariant" in chart.schema["properties"]:
        found["kubernetesVariant"] = "default" if variant == UNKNOWN else variant
    return found


def _written(folder: str, values: Sequence[Mapping[str, Any]], chart: bytes) -> list[str]:
    """Write the chart and the values; returns their paths."""
    paths = [os.path.join(folder, "svc-core.tgz")]
    Path(paths[0]).write_bytes(chart)
    for number, each in enumerate(values):
        paths.append(os.path.join(folder, f"{number}.json"))
        Path(paths[-1]).write_text(json.dumps(each))
    return paths


def _plan(release: Release, wishes: Wishes, seen: Seen, step: Step, variant: str) -> list[str]:
    from svc.install.deployment.cluster import POD_SECURITY, PULL_SECRET

    existing = seen.existing
    was = "" if existing is None or step is Step.INSTALL else f" (now {printable(existing.version)})"
    lines = [
        f"{'install' if step is Step.INSTALL else 'upgrade'}: svc-core {release.version}{was} in {DEFAULT_NAMESPACE}"
    ]
    if step is Step.ROLL_BACK_AND_UPGRADE and existing is not None:
        lines.append(f"before: roll back the upgrade that was cut off ({printable(existing.status)})")
    lines.append(f"images: {release.registry}")
    if not _namespace_there(seen.facts):
        lines.append(f"make: namespace {DEFAULT_NAMESPACE}, with {POD_SECURITY}=privileged")
    if release.credentials is not None:
        lines.append(f"make: Secret {DEFAULT_NAMESPACE}/{PULL_SECRET}, with the credentials of the registry")
    else:
        lines.append("nodes pull without credentials: no user and password are known to give them")
    lines.append(f"kubernetes variant: {variant}{'' if wishes.variant else ' (detected)'}")
    return lines


def _roll_back(helm: Helm, existing: Existing, wishes: Wishes, console: Console) -> str:
    """Roll an upgrade back that has failed; returns what became of it."""
    from svc.install.deployment.cluster import existing_release

    try:
        now, _cluster = on_cluster(existing_release, wishes.choice)
        if now is None or now.revision <= existing.revision or now.status != "failed":
            return "nothing is rolled back: the upgrade has made no revision that failed"
        console.write_stderr(
            f"rolling back to revision {existing.deployed}; an interrupt counts when it has ended, or after "
            f"{wishes.timeout:.0f} s"
        )
        helm.roll_back(existing.deployed, wishes.timeout)
    except SvcError as error:
        return f"not rolled back: {error} ({error.reason})"
    return f"rolled back to revision {existing.deployed}"


def _unready(choice: Choice, invocation: Invocation) -> list[str]:
    """What is not ready after an installation that failed: pods, and what ``svc check`` finds."""
    from svc.checks.cluster import CHECKS
    from svc.checks.reading import read_cluster
    from svc.install.deployment.cluster import pods_not_ready

    async def look(client: Client) -> tuple[list[str], ClusterFacts]:
        return await pods_not_ready(client), await read_cluster(client, invocation.now)

    try:
        (pods, facts), _cluster = on_cluster(look, choice)
    except SvcError as error:
        return [f"the cluster could not be asked what is not ready: {error}"]
    return [*(printable(line, 500) for line in pods[:20]), *_failures(make_checks(CHECKS, facts), "svc check")]
