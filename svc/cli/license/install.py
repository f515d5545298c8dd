"""``svc license install``: verifies a file, and makes the Secret with the license or prints it."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from svc import naming
from svc.cli.cluster import choose, on_cluster
from svc.cli.documents import document_text, read_file
from svc.cli.errors import UsageRefused
from svc.cli.globals import Invocation
from svc.cli.license.reading import refusal, warn_of_test_vendor
from svc.envelope.errors import EnvelopeError
from svc.errors import printable
from svc.license.armour import MAX_FILE
from svc.license.secret import check_installed, license_secret
from svc.license.states import LicenseState, state_at
from svc.license.vendors import pinned_keys
from svc.license.verification import VerifiedLicense, verify_license

if TYPE_CHECKING:
    from svc.kube.client import Client

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def run_install(path: str, namespace: str, dry_run: bool, named: tuple[str, str], invocation: Invocation) -> int:
    """
    Carry out ``svc license install``; returns the exit status 0.

    Args:
        named: the kubeconfig and the context of the flags.

    Raises:
        CommandFailed: the license was refused, and nothing was asked of a cluster; or for what the cluster refused, and
            LicenseRefused where the Secret is there and is another one.
        FileUnreadable: there is no such file.
        UsageRefused: the namespace cannot be one.
        CliError: the client of Kubernetes is not installed.
        CompartmentError, KubernetesError: there is no cluster.
    """
    console = invocation.console
    if not _NAMESPACE.fullmatch(namespace):
        expected = "up to 63 of a-z, 0-9 and -, no - at the ends"
        raise UsageRefused(f'--namespace does not accept "{printable(namespace)}"', f"expected: {expected}")
    try:
        verified = verify_license(read_file(path, MAX_FILE), pinned_keys())
    except EnvelopeError as error:
        raise refusal(error) from error
    secret = license_secret(verified, namespace)
    if dry_run:
        console.write_text(document_text(secret, "yaml"))
    else:
        choice = choose(*named, invocation.environ, changes=True)
        made, cluster = on_cluster(partial(_installed, verified, secret), choice)
        shown = f"license {verified.license.id} of {printable(verified.license.licensee)}"
        change = "installed" if made else "installed already, nothing was changed"
        console.write_text(f"{shown}: {change}: Secret {namespace}/{secret['metadata']['name']}, {cluster}\n")
    _warn(verified, namespace, invocation)
    return 0


async def _installed(verified: VerifiedLicense, secret: dict[str, Any], client: Client) -> bool:
    """Make the Secret; false where it was there already."""
    from svc.kube.errors import Conflict
    from svc.kube.kinds import SECRETS

    try:
        await client.create(SECRETS, secret)
    except Conflict:
        metadata = secret["metadata"]
        check_installed(verified, await client.get(SECRETS, metadata["name"], metadata["namespace"]))
        return False
    return True


def _warn(verified: VerifiedLicense, namespace: str, invocation: Invocation) -> None:
    console, state = invocation.console, state_at(verified.license, invocation.now())
    if namespace != naming.DEFAULT_NAMESPACE:
        where = f"{naming.DEFAULT_NAMESPACE} alone, unless its licenseNamespaces name {namespace}"
        console.warn(f"the manager will not see this license: it looks in {where}")
    if state not in (LicenseState.VALID, LicenseState.EXPIRING_SOON):
        console.warn(f"the state of the license is {state.value} by the clock of this machine")
    warn_of_test_vendor(verified, console)
