"""The own side of federation that ``twistd svc-manager`` keeps, with a real API server and a real SPIRE."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, Literal

from cryptography import x509

from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.reference import FederationReference
from svc.federation.succession import check_follows, needed_links
from svc.identity.pqbundle import PqBundles
from svc.process.clock import utc_now
from tests.federation.material import PROD, full_content
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import eventually, free_port

SECRET: Final = ("secret", "svc-federation-keys", "-n", "svc-system")
NODE: Final = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
SERVICE: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "svc-m2m", "namespace": "svc-system"},
    "spec": {"type": "NodePort", "selector": {"app": "svc-manager"}, "ports": [{"port": 443, "nodePort": 31443}]},
}


class FederationTests(ManagerCase):
    """A cluster with one node."""

    def setUp(self) -> None:
        """Start SPIRE, which gives the manager both SVIDs, and make node, Service and post-quantum bundle."""
        super().setUp()
        self.spire = RunningSpire("prod.example.org", entries=[entry("/svc/manager", admin=True), entry("/svc/m2m")])
        self.stack.callback(self.spire.stop)
        self.spire.start()
        (self.spire.folder / "pq-bundle.json").write_bytes(PqBundles({PROD: full_content().pq}).serialize())
        kubectl = self.server.kubectl
        kubectl("apply", "-f", "-", data=json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, SERVICE]}))
        self.stack.callback(kubectl, "delete", "node/node-1", "service/svc-m2m", "-n", "svc-system")
        addresses = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}}
        kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", json.dumps(addresses))
        self.port = free_port()

    def federating(self, **federation: Any) -> RunningManager:
        """Start a manager."""
        spire = {"server": f"127.0.0.1:{self.spire.port}", "spiffeSocketPath": self.spire.address, "every": "1s"}
        cluster = {"trustDomain": "prod.example.org", "spire": spire, "federation": federation}
        addresses = {"m2mAddr": f"127.0.0.1:{self.port}", "controlPlaneAddr": f"127.0.0.1:{free_port()}"}
        return self.manager(**addresses, cluster=cluster)

    def found(self) -> dict[str, Any]:
        """The status of SvcCluster; empty where there is none."""
        found = self.server.kubectl("get", "svccluster", "cluster", "--ignore-not-found", "-o", "json")
        return json.loads(found).get("status", {}) if found else {}

    def until_condition(self, kind: str, *wanted: str) -> dict[str, Any]:
        """Wait for status and reason of a condition; returns the status of the object."""

        def held() -> dict[str, Any] | Literal[False]:
            status = self.found()
            conditions = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}
            return status if conditions.get(kind) == wanted else False

        return eventually(held, what=f"{kind} {wanted}")

    def get(self, path: str, **more: Any) -> bytes:
        """What a peer gets, who verifies the server by SPIRE's bundle."""
        context = ssl.create_default_context(cadata=self.spire.bundle("pem"))
        context.check_hostname = False
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", **more)
        with urllib.request.urlopen(request, context=context, timeout=30) as response:
            return bytes(response.read())

    def refused(self, path: str, **more: Any) -> int:
        """The status with which a peer is refused."""
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.get(path, **more)
        caught.exception.close()
        return caught.exception.code

    def served(self) -> VerifiedPackage:
        """The package as a peer gets it."""
        return verify_package(self.get("/v1/bootstrap-package"))

    def test_published(self) -> None:
        """The package has SPIRE's bundle and the post-quantum roots, and peers fetch it from the replica's own SVID."""
        manager = self.federating()
        status = self.until_condition("Ready", "True", "Published")
        package = verify_package(base64.b64decode(status["bootstrapPackage"]["data"]))
        content = package.content
        self.assertEqual((PROD, 1, full_content().pq), (content.trust_domain, content.sequence, content.pq))
        self.assertEqual(content.fingerprint.grouped, status["fingerprint"])
        self.assertEqual([{"address": "192.0.2.7:31443", "type": "NodePort"}], status["m2mEndpoints"])
        self.assertEqual("192.0.2.7:31443", str(FederationReference.parse(status["reference"]).endpoint))
        eventually(self.answers)
        self.assertEqual(content, self.served().content)
        bundle = json.loads(self.get("/v1/bundle"))
        own = json.loads(self.spire.bundle())
        self.assertEqual(sorted(map(_known, own["keys"]), key=str), sorted(map(_known, bundle["keys"]), key=str))
        self.assertEqual(300, bundle["spiffe_refresh_hint"])
        self.assertEqual("spiffe://prod.example.org/svc/m2m", self.presented())
        self.assertEqual(
            [404, 404, 405],
            [self.refused("/v1/bootstrap-package/2"), self.refused("/"), self.refused("/v1/bundle", data=b"{}")],
        )
        count = {"direction": "push"}
        eventually(lambda: self.streams() == 1, what="one stream for all controllers")
        self.assertLessEqual(2, manager.value("bundle_exchange_total", result="success", **count))
        self.assertEqual(2, manager.value("bundle_exchange_total", result="error", **count))
        version = self.version()
        time.sleep(3)
        self.assertEqual(version, self.version(), "an unchanged status is not written")
        (record,) = manager.records("svc.manager.federation_roots.changed")
        self.assertEqual(status["fingerprint"], record["attributes"]["fingerprint"])

    def test_roots_follow_each_other(self) -> None:
        """Who has pinned the first package follows the served ones to the roots of now."""
        manager = self.federating(rootTtl="6s")
        self.until_condition("Ready", "True", "Published")
        eventually(self.answers)
        pinned = self.served()
        served = eventually(lambda: (found := self.served()).content.sequence >= pinned.content.sequence + 2 and found)
        links = {
            number: verify_package(self.get(f"/v1/bootstrap-package/{number}"))
            for number in needed_links(pinned, served)
        }
        check_follows(pinned, served, utc_now(), links)
        self.assertNotEqual(pinned.content.fingerprint, served.content.fingerprint)
        self.assertEqual([], manager.records("svc.manager.reconcile.failed"))

    def test_secret_is_never_replaced(self) -> None:
        """Roots that are damaged or gone are named, the package stays, and no others are made."""
        self.federating()
        before = self.until_condition("Ready", "True", "Published")
        kept = json.loads(self.server.kubectl("get", *SECRET, "-o", "json"))
        patch = json.dumps({"data": {"keys.json": base64.b64encode(b"{}").decode()}})
        self.server.kubectl("patch", *SECRET, "-p", patch)
        self.until_condition("PackagePublished", "True", "NotRenewed")
        self.server.kubectl("delete", *SECRET)
        status = eventually(lambda: (found := self.found()) and "is gone" in json.dumps(found["conditions"]) and found)
        self.assertEqual(before["bootstrapPackage"], status["bootstrapPackage"])
        self.assertEqual("", self.server.kubectl("get", *SECRET, "--ignore-not-found"))
        metadata = {"name": "svc-federation-keys", "namespace": "svc-system"}
        self.server.kubectl("create", "-f", "-", data=json.dumps({**kept, "metadata": metadata}))
        after = self.until_condition("PackagePublished", "True", "Signed")
        self.assertEqual(before["fingerprint"], after["fingerprint"])

    def version(self) -> str:
        """Which state of SvcCluster it is."""
        return self.server.kubectl("get", "svccluster", "cluster", "-o", "jsonpath={.metadata.resourceVersion}")

    def streams(self) -> int:
        """The open connections to the Workload API."""
        path = self.spire.address.removeprefix("unix://")
        lines = Path("/proc/net/unix").read_text().splitlines()
        # Number, references, protocol, flags, type, state (3: connected), inode and path.
        return sum(each.split()[5] == "03" for each in lines if each.endswith(f" {path}"))

    def answers(self) -> bool:
        """Whether the endpoint answers."""
        try:
            return bool(self.get("/v1/bundle"))
        except OSError:
            return False

    def presented(self) -> str:
        """The SPIFFE ID that the endpoint shows."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.port))
        names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        return names.value.get_values_for_type(x509.UniformResourceIdentifier)[0]


def _known(key: dict[str, Any]) -> dict[str, Any]:
    """What counts of a key."""
    return {name: key.get(name) for name in ("kty", "use", "kid", "crv", "x", "y", "x5c")}
