"""A cluster that flags name: what it says about itself, and what is written there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from svc import naming
from svc.cli.cluster import Choice, Cluster, on_cluster
from svc.cli.errors import ClusterNotFederated, CommandFailed
from svc.cli.federation.peers import OwnCluster, Peer, Relationship
from svc.cli.federation.side import Exported, ImportRequest
from svc.cli.federation.tunnel import live_package
from svc.envelope.claims import utc_seconds
from svc.errors import SvcError
from svc.federation.endpoint import Endpoint
from svc.federation.importing import check_import
from svc.federation.reference import FederationReference

if TYPE_CHECKING:
    from svc.kube.client import Client, Object

#: The field manager of what is written.
FIELD_MANAGER: Final = "svc-cli"
#: There in every cluster, and made once: its UID is that of the cluster.
_ANCHOR: Final = "kube-system"


@dataclass(frozen=True)
class Found:
    """
    What was read of a cluster.

    Args:
        uid: of the namespace ``kube-system``; empty where it was not asked for.
        objects: each ``SvcForeignCluster``.
    """

    own: OwnCluster
    cluster: Cluster
    uid: str
    objects: list[Object]


class SelectedCluster:
    """
    A cluster.

    Args:
        choice: which one.
        endpoint: of ``--endpoint-host``; None for the one that is found.
        name: of ``--name``; empty for one made of the trust domain of the peer.
        tunnel: whether the package is the one that the manager serves now.
        now: an aware time; it tells one request to begin anew from the next.
    """

    def __init__(
        self,
        choice: Choice,
        now: datetime,
        *,
        endpoint: Endpoint | None = None,
        name: str = "",
        tunnel: bool = False,
    ) -> None:
        self._choice = choice
        self._now = now
        self._endpoint = endpoint
        self._name = name
        self._tunnel = tunnel

    def export(self) -> Exported:
        """See :class:`svc.cli.federation.side.Side`; ``endpoint_not_found`` where there is none."""
        found = self.read()
        with named(found.cluster):
            endpoint = found.own.endpoint(self._endpoint)
            if endpoint is None:
                raise ClusterNotFederated("endpoint_not_found")
        remarks = {"m2mEndpoint": str(endpoint), "cluster": str(found.cluster)}
        return Exported(found.own.package.package.with_endpoint(endpoint), remarks)

    def import_package(self, request: ImportRequest) -> Mapping[str, object]:
        """See :class:`svc.cli.federation.side.Side`; the manager pins the package later."""
        package, found = request.package, self.read(objects=True)
        content = package.content
        peer = Peer(
            content.trust_domain,
            content.fingerprint,
            package.package.endpoint,
            package.package,
            compared=bool(request.expected),
        )
        anew = request.rebootstrap or request.force
        with named(found.cluster):
            relationship = Relationship.find(content.trust_domain, found.objects, self._name)
            kept = not anew and relationship.follows(content.fingerprint)
            check_import(
                package,
                own=found.own.trust_domain,
                now=self._now,
                existing=None if kept else relationship.continuity,
                rebootstrap=request.rebootstrap,
                force=request.force,
            )
        token = self._now.strftime("%Y%m%dT%H%M%S.%fZ") if anew else ""
        return {
            "m2mEndpoint": peer.address,
            **self.write(peer, relationship, token=token, force=request.force),
        }

    def info(self) -> Mapping[str, object]:
        """See :class:`svc.cli.federation.side.Side`."""
        found = self.read(objects=True)
        content = found.own.package.content
        with named(found.cluster):
            endpoint = found.own.endpoint(self._endpoint)
        return {
            "cluster": str(found.cluster),
            "trustDomain": content.trust_domain.name,
            "fingerprint": content.fingerprint.to_members(),
            "reference": str(FederationReference(content.trust_domain, content.fingerprint, endpoint)),
            "sequence": content.sequence,
            "expiresAt": utc_seconds(content.expires),
            "m2mEndpoint": None if endpoint is None else str(endpoint),
            "m2mEndpoints": [str(each) for each in found.own.endpoints],
            "conditions": [_condition(each) for each in found.own.conditions],
            "peers": [_peer(each) for each in found.objects],
        }

    def read(self, *, objects: bool = False, uid: bool = False) -> Found:
        """
        Read what the cluster publishes; ``tunnel`` has the manager asked too.

        Args:
            objects: whether the peers are read.
            uid: whether the identity of the cluster is read.

        Raises:
            CommandFailed: it is not there, does not allow it, or does not federate.
            KubectlMissing: kubectl is needed and cannot be started.
        """

        async def work(client: Client) -> tuple[OwnCluster, str, list[Object]]:
            from svc.kube.errors import NotFound
            from svc.kube.kinds import CLUSTER_NAME, CLUSTERS, FOREIGN_CLUSTERS, NAMESPACES

            try:
                own = OwnCluster.of(await client.get(CLUSTERS, CLUSTER_NAME))
            except NotFound as error:
                detail = f"there is no {CLUSTERS.name} {CLUSTER_NAME}"
                raise ClusterNotFederated(detail=detail) from error
            peers = (await client.list(FOREIGN_CLUSTERS))[0] if objects else []
            anchor = await client.get(NAMESPACES, _ANCHOR) if uid else {"metadata": {"uid": ""}}
            return own, anchor["metadata"]["uid"], peers

        (own, identity, peers), cluster = on_cluster(work, self._choice)
        if self._tunnel:
            with named(cluster):
                own = own.check_live(live_package(self._choice.kubeconfig, cluster.context, self._choice.environ))
        return Found(own, cluster, identity, peers)

    def write(
        self, peer: Peer, relationship: Relationship, *, token: str = "", force: bool = False
    ) -> dict[str, object]:
        """
        Write the object of a peer by server-side apply; the same again is no change.

        Returns:
            What was done, for printing.

        Raises:
            CommandFailed: the cluster refused it; then nothing has changed.
        """

        async def work(client: Client) -> Object:
            from svc.kube.kinds import FOREIGN_CLUSTERS

            body = {"metadata": {"name": relationship.name}, "spec": peer.spec(token=token, force=force)}
            return await client.apply(FOREIGN_CLUSTERS, body, manager=FIELD_MANAGER)

        _written, cluster = on_cluster(work, self._choice)
        return {
            "result": "rebootstrap" if token else relationship.change(peer),
            "object": f"SvcForeignCluster {relationship.name}",
            "cluster": str(cluster),
            "wait": self.wait(relationship.name, cluster),
        }

    def wait(self, name: str, cluster: Cluster) -> str:
        """Return the command that waits until the manager has pinned a peer, for a shell."""
        options = {"--kubeconfig": self._choice.kubeconfig, "--context": cluster.context}
        where = [word for option, value in options.items() if value for word in (option, value)]
        kind = f"svcforeignclusters.{naming.DOMAIN}/{name}"
        words = shlex.join(["kubectl", *where, "wait", "--for=condition=Ready", kind, "--timeout=5m"])
        paths = "" if self._choice.kubeconfig else self._choice.environ.get("KUBECONFIG", "")
        return f"KUBECONFIG={shlex.quote(paths)} {words}" if paths else words


@contextmanager
def named(cluster: Cluster, *remarks: str) -> Iterator[None]:
    """Put a cluster, and further lines, behind what is refused."""
    try:
        yield
    except SvcError as error:
        raise CommandFailed(error, error.exit_status, (f"the cluster is {cluster}", *remarks)) from error


def _condition(found: Mapping[str, Any]) -> dict[str, object]:
    return {name: found.get(name) for name in ("type", "status", "reason", "message")}


def _peer(found: Object) -> dict[str, object]:
    status = found.get("status") or {}
    pinned = status.get("pinned") or {}
    return {
        "name": found["metadata"]["name"],
        "trustDomain": (found.get("spec") or {}).get("trustDomain"),
        "continuity": status.get("continuity"),
        "fingerprint": pinned.get("fingerprint"),
        "lastSuccess": status.get("lastSuccess"),
        "conditions": [_condition(each) for each in status.get("conditions") or ()],
    }
