"""``svc federation`` with clusters in memory: transcripts of each flag, and what no transcript shows."""

from __future__ import annotations

import base64
import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.federation import selected
from svc.envelope.claims import utc_seconds
from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage
from svc.identity import TrustDomain
from svc.kube import client as kube_client
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.kinds import CLUSTERS, FOREIGN_CLUSTERS, NAMESPACES, Kind
from tests.cli.test_transcripts import runs, transcript_of
from tests.federation.material import PARTNER, signed
from tests.vectors.material import NOW

_TRANSCRIPT: Final = Path(__file__).parent / "transcripts" / "federation-clusters.txt"
_HOSTS: Final = {"prod": "192.0.2.1", "partner": "192.0.2.2"}


def cluster_object(package: VerifiedPackage, *addresses: str) -> dict[str, Any]:
    """The ``SvcCluster`` of a package, as its manager writes it."""
    content = package.content
    return {
        "metadata": {"name": "cluster"},
        "status": {
            "trustDomain": content.trust_domain.name,
            "fingerprint": content.fingerprint.grouped,
            "reference": str(package.package.reference),
            "bootstrapPackage": {
                "data": base64.b64encode(package.package.serialize()).decode(),
                "sequence": content.sequence,
                "issuedAt": utc_seconds(content.issued),
                "notAfter": utc_seconds(content.expires),
            },
            "m2mEndpoints": [{"address": each, "type": "NodePort"} for each in addresses],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Published",
                    "message": "the package is published",
                    "lastTransitionTime": utc_seconds(NOW),
                }
            ],
        },
    }


def foreign_object(name: str, domain: TrustDomain, pinned: str = "", continuity: str = "") -> dict[str, Any]:
    """A ``SvcForeignCluster``, of which a package is pinned or not."""
    status = {"pinned": {"fingerprint": pinned}, "continuity": continuity} if pinned else {}
    return {"metadata": {"name": name}, "spec": {"trustDomain": domain.name}, "status": status}


class MemoryCluster:
    """An API server in memory, as its own client."""

    def __init__(self, name: str, package: VerifiedPackage) -> None:
        self.server, self.context = f"https://{name}.test:6443", name
        self.uid = f"uid-of-{name}"
        self.live = package
        self.own: dict[str, Any] | None = cluster_object(package, f"{_HOSTS[name]}:31443")
        self.peers: list[dict[str, Any]] = []
        self.applied: list[dict[str, Any]] = []
        self.refusal: KubernetesError | None = None

    async def get(self, kind: Kind, name: str) -> dict[str, Any]:
        """Read the SvcCluster or the namespace."""
        if kind is NAMESPACES:
            return {"metadata": {"name": name, "uid": self.uid}}
        assert kind is CLUSTERS
        if self.own is None:
            raise NotFound(action=f"read {kind}", detail="none")
        return self.own

    async def list(self, kind: Kind) -> tuple[list[dict[str, Any]], str]:
        """List the peers."""
        assert kind is FOREIGN_CLUSTERS
        return self.peers, "1"

    async def apply(self, kind: Kind, body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        """Keep what is applied."""
        assert (kind, manager) == (FOREIGN_CLUSTERS, "svc-cli")
        if self.refusal is not None:
            raise self.refusal
        self.applied.append(body)
        return body

    async def aclose(self) -> None:
        """Do nothing."""


class ClustersCase(SynchronousTestCase):
    """Two clusters: ``prod`` and ``partner`` by context or by the name of a kubeconfig."""

    maxDiff = None

    def setUp(self) -> None:
        """Make the clusters and the package files."""
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)
        self.prod_package, self.partner_package = signed(), signed(trust_domain=PARTNER)
        hinted = self.partner_package.package.with_endpoint(Endpoint.parse("m2m.partner.example.org:443"))
        for name, package in (
            ("prod", self.prod_package.package),
            ("partner", self.partner_package.package),
            ("hinted", hinted),
        ):
            Path(self.folder, f"{name}.json").write_bytes(package.serialize())
        self.arrange("")

        async def connect(kubeconfig: str, context: str, *, environment: Mapping[str, str]) -> MemoryCluster:
            return self.clusters[context or Path(kubeconfig).name or "prod"]

        def live_package(kubeconfig: str, context: str, environ: Mapping[str, str]) -> VerifiedPackage:
            return self.clusters[context or Path(kubeconfig).name].live

        self.patch(kube_client, "connect", connect)
        self.patch(selected, "live_package", live_package)

    def arrange(self, scenario: str) -> None:
        """Make both clusters, in one of the states that the transcript names."""
        prod, partner = MemoryCluster("prod", self.prod_package), MemoryCluster("partner", self.partner_package)
        self.clusters = {"prod": prod, "partner": partner}
        fingerprint, other = self.partner_package.content.fingerprint.grouped, "-".join(["aaaa"] * 13)
        assert prod.own is not None
        match scenario.partition(":"):
            case ("no-endpoint", _, name):
                own = self.clusters[name].own
                assert own is not None
                own["status"]["m2mEndpoints"] = []
            case ("absent", _, _):
                prod.own = None
            case ("unready", _, _):
                condition = {"type": "Ready", "reason": "NoNodes", "message": "no node is ready"}
                prod.own["status"] = {"conditions": [condition]}
            case ("forged", _, _):
                prod.own["status"]["fingerprint"] = other
            case ("same-cluster", _, _):
                partner.uid = prod.uid
            case ("same-domain", _, _):
                partner.own, partner.live = prod.own, prod.live
            case ("live-differs", _, _):
                partner.live = signed(2, introduced=True, trust_domain=PARTNER)
            case ("pinned", _, continuity):
                prod.peers = [foreign_object("peer", PARTNER, fingerprint, continuity)]
            case ("other", _, continuity):
                prod.peers = [foreign_object("peer", PARTNER, other, continuity)]
            case ("unpinned", _, _):
                prod.peers = [foreign_object("peer", PARTNER)]
            case ("taken", _, _):
                prod.peers = [foreign_object("partner.example.org", TrustDomain.parse("third.example.org"))]
            case ("refused", _, name):
                self.clusters[name].refusal = KubernetesError("kubernetes_forbidden", action="apply", detail="no")
            case unknown:
                assert unknown == ("", "", ""), unknown

    def applied(self) -> str:
        """What was applied, with packages by their trust domain."""
        lines = ["applied:"]
        for name, cluster in self.clusters.items():
            for body in copy.deepcopy(cluster.applied):
                spec = body["spec"]
                if "bootstrapPackage" in spec:
                    spec["bootstrapPackage"] = f"{len(spec['bootstrapPackage'])} characters"
                lines.append(f"  {name}: {body['metadata']['name']}")
                lines += [f"    {member}: {value}" for member, value in spec.items()]
        return "".join(f"{line}\n" for line in lines) if len(lines) > 1 else ""


class TranscriptTests(ClustersCase):
    """The recorded runs."""

    def test_transcripts(self) -> None:
        """Each flag of export, import, info and connect, and each refusal."""
        reference = str(self.partner_package.package.with_endpoint(Endpoint.parse("192.0.2.2:31443")).reference)
        recorded = runs(_TRANSCRIPT.read_text())
        self.assertGreater(len(recorded), 40)
        for environ, command, expected in recorded:
            self.arrange(environ.pop("CLUSTERS", ""))
            Path(self.folder, "out.json").unlink(missing_ok=True)
            words = command.replace("DIR", self.folder).replace("REFERENCE", reference)
            found = transcript_of(words, environ, now=utc_seconds(NOW)) + self.applied()
            found = found.replace(self.folder, "DIR")
            self.assertEqual(found.strip(), expected.strip(), f"{environ} {command}")
