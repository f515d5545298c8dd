"""
What the chart does around the objects of its release, each in a Job: ``python3 -m svc.chart.hooks``.

``prepare`` runs before an installation and each upgrade, ``remove`` before the objects of the release are deleted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from svc import strictyaml
from svc.data import FOLDER
from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.kube.client import Client, Object, connect
from svc.kube.election import LEASES
from svc.kube.errors import NotFound
from svc.kube.kinds import (
    CLAIMS,
    CONFIG_MAPS,
    CUSTOM_RESOURCES,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Kind,
)
from svc.naming import (
    ANNOTATION_TRUST_DOMAIN,
    AUTHORITY,
    AUTHORITY_KEYS_SECRET,
    COMPILED_CONFIG_MAP,
    CONNECTIONS_CONFIGURATION,
    CSI_DRIVER,
    FEDERATION_SECRET,
    LABEL_MANAGED_BY,
    MANAGER,
    NETWORK_POLICY,
    POLICIES_CONFIGURATION,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
)
from svc.process.options import exit_with

#: Owns the fields that are applied here.
_OWNER: Final = "svc-hooks"
_PAUSE: Final = 0.5
_SHOWN: Final = 20
#: Pods of these phases have ended: their volumes are unmounted.
_ENDED: Final = ("Succeeded", "Failed")
#: The volume of the SPIRE server.
_CLAIM: Final = "data-spire-server-0"
#: With private keys; they outlive the release unless everything is removed.
_SECRETS: Final = (AUTHORITY_KEYS_SECRET, FEDERATION_SECRET, WEBHOOK_SECRET)


class PlatformInUse(SvcError):
    """{count} pod(s) have a volume of the platform and could not end without it: {names}"""

    reason = "platform_in_use"
    hint = (
        "take the label svc.internal/injection off their namespaces and restart or delete them, then uninstall again; "
        "helm uninstall --no-hooks does not ask, and the pods hang when they end"
    )


class TrustDomainChanged(SvcError):
    """{claim} is of the trust domain {former} and cannot become one of {wanted}"""

    reason = "trust_domain_changed"
    # The Job is not repeated.
    exit_status = 2
    hint = (
        "identities, the data of SPIRE and the post-quantum keys are of the former: keep trustDomain, or uninstall "
        "with purge: true and install again"
    )


async def prepare(client: Client, namespace: str, trust_domain: str) -> None:
    """
    Bring the custom resources to the version of this package.

    Args:
        namespace: of the release.
        trust_domain: that of the values.

    Raises:
        TrustDomainChanged: the data of SPIRE is of another one; nothing was changed.
    """
    with suppress(NotFound):
        claim = await client.get(CLAIMS, _CLAIM, namespace)
        former = claim["metadata"].get("annotations", {}).get(ANNOTATION_TRUST_DOMAIN, trust_domain)
        if TrustDomain.parse(former) != TrustDomain.parse(trust_domain):
            raise TrustDomainChanged(claim=f"{CLAIMS}/{_CLAIM}", former=former, wanted=trust_domain)
    for resource in custom_resources():
        name = resource["metadata"]["name"]
        await client.apply(CUSTOM_RESOURCES, resource, manager=_OWNER)
        await _until(lambda name=name: _established(client, name))  # type: ignore[misc]
        print(f"applied {CUSTOM_RESOURCES}/{name}")


async def remove(client: Client, namespace: str, *, purge: bool) -> None:
    """
    End what uses the volumes of the platform, and remove what the release does not own.

    Args:
        namespace: of the release.
        purge: whether custom resources and keys are removed too.

    Raises:
        PlatformInUse: pods of others have a volume of the platform; nothing was changed.
    """
    pods, _version = await client.list(PODS)
    names = sorted(_name(pod) for pod in pods if _uses(pod) and pod["metadata"]["namespace"] != namespace)
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise PlatformInUse(count=len(names), names=", ".join(names[:_SHOWN]) + more)
    # The manager would write the configuration again; and its pods and the authority's end while the driver is there.
    for name in (MANAGER, AUTHORITY):
        await _scale_down(client, name, namespace)
    await _until(lambda: _unused(client, namespace))
    await _delete(client, MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)
    await _delete(client, VALIDATING_WEBHOOKS, CONNECTIONS_CONFIGURATION)
    await _delete(client, VALIDATING_WEBHOOKS, POLICIES_CONFIGURATION)
    await _delete(client, LEASES, MANAGER, namespace)
    for kind, name in ((NETWORK_POLICIES, NETWORK_POLICY), (CONFIG_MAPS, COMPILED_CONFIG_MAP)):
        own = {"labels": f"{LABEL_MANAGED_BY}={MANAGER}", "fields": f"metadata.name={name}"}
        found, _version = await client.list(kind, **own)
        for each in found:
            await _delete(client, kind, name, each["metadata"]["namespace"])
    leftovers = [(CUSTOM_RESOURCES, each["metadata"]["name"], "") for each in custom_resources()]
    leftovers += [(SECRETS, name, namespace) for name in _SECRETS]
    for kind, name, place in leftovers:
        if purge:
            await _delete(client, kind, name, place)
        else:
            print(f"kept {kind}/{name}")
    if not purge:
        print(f"kept {CLAIMS}/{_CLAIM}")


def custom_resources() -> Iterator[Any]:
    """The custom resources of this package."""
    for path in sorted((FOLDER / "crds").glob("*.yaml")):
        yield strictyaml.loads(path.read_text())


def _uses(pod: Object) -> bool:
    """Whether a pod has a volume of the driver that has not been unmounted."""
    drivers = [each.get("csi", {}).get("driver") for each in pod["spec"].get("volumes") or ()]
    return CSI_DRIVER in drivers and pod.get("status", {}).get("phase") not in _ENDED


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _scale_down(client: Client, name: str, namespace: str) -> None:
    with suppress(NotFound):
        await client.get(DEPLOYMENTS, name, namespace)
        body: Object = {"metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": 0}}
        await client.apply(DEPLOYMENTS, body, manager=_OWNER)


async def _delete(client: Client, kind: Kind, name: str, namespace: str = "") -> None:
    with suppress(NotFound):
        await client.delete(kind, name, namespace)
        print(f"removed {kind}/{name}")


async def _established(client: Client, name: str) -> bool:
    found = await client.get(CUSTOM_RESOURCES, name)
    conditions = found.get("status", {}).get("conditions") or ()
    return {"Established": "True"}.items() <= {each["type"]: each["status"] for each in conditions}.items()


async def _unused(client: Client, namespace: str) -> bool:
    pods, _version = await client.list(PODS, namespace)
    return not any(_uses(pod) for pod in pods)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait; the Job has a deadline."""
    while not await holds():
        await asyncio.sleep(_PAUSE)


async def _run(options: argparse.Namespace) -> None:
    async with aclosing(await connect()) as client:
        if options.command == "prepare":
            await prepare(client, options.namespace, options.trust_domain)
        else:
            await remove(client, options.namespace, purge=options.purge)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="svc.chart.hooks", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    before, after = commands.add_parser("prepare"), commands.add_parser("remove")
    for each in (before, after):
        each.add_argument("--namespace", required=True, help="of the release")
    before.add_argument("--trust-domain", required=True, help="that of the values")
    after.add_argument("--purge", action="store_true", help="remove custom resources and keys too")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run a hook; exits with 1 and the reason where it fails."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_run(options))
    except SvcError as error:
        exit_with(error, sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
