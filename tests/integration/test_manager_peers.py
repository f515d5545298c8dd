"""Peers of federation that ``twistd svc-manager`` polls, with a real API server, a real SPIRE and simulated peers."""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from svc.federation.package import VerifiedPackage, sign_package
from svc.federation.payload import PeerBundle, Previous
from svc.identity import SpiffeID, TrustDomain, X509Bundle
from svc.identity.pqbundle import PqBundle
from svc.naming import ENTRY_OWNER, INJECTION_ENABLED, LABEL_INJECTION
from svc.notary.pqissuer import PqIssuer
from svc.process.clock import utc_now
from svc.testing.ca import TestAuthority
from svc.workload.pqfile import read_pq_bundles
from tests.federation.material import PARTNER, content, roots, signers
from tests.integration.test_agent import RunningAgent
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.authority import RunningAuthority
from tests.peers.folders import make_folder, remove_folder
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import eventually, free_port

M2M = SpiffeID(PARTNER, "/svc/m2m")
STEP = timedelta(seconds=1)


class Peer:
    """The endpoint of a peer, with an authority of its own; ``paths`` is what it answers, by path."""

    def __init__(self, folder: Path, identity: SpiffeID = M2M) -> None:
        self.authority = TestAuthority(PARTNER.name, now=utc_now())
        self.paths: dict[str, bytes | tuple[int, str]] = {}
        self.asked: list[str] = []
        svid = self.authority.svid(identity.path)
        pem = folder / "peer.pem"
        key = svid.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem.write_bytes(key + b"".join(each.public_bytes(Encoding.PEM) for each in svid.chain))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.endpoint = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                peer.asked.append(self.path)
                found = peer.paths.get(self.path, (404, ""))
                status, place = (200, "") if isinstance(found, bytes) else found
                body = found if isinstance(found, bytes) else b""
                self.send_response(status)
                if place:
                    self.send_header("Location", place)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        return Handler

    def package(
        self, sequence: int = 1, *, introduced: bool = False, age: int = 0, pq: PqBundle | None = None
    ) -> VerifiedPackage:
        """A package that is so many seconds old, with post-quantum roots or none."""
        document = json.loads(_bundle_document(self.authority))
        bundle = PeerBundle(1, 10, tuple(document["keys"]), self.authority.bundle())
        previous = Previous(sequence - 1, roots(sequence - 1).fingerprint(PARTNER)) if sequence > 1 else None
        issued = utc_now().replace(microsecond=0) - age * STEP
        said = content(
            sequence,
            issued=issued,
            trust_domain=PARTNER,
            bundle=bundle,
            previous=previous,
            roots=roots(sequence),
            pq=pq or PqBundle(3, X509Bundle(PARTNER)),
        )
        return sign_package(said, signers(sequence), previous=signers(sequence - 1) if introduced else ())

    def serve(self, package: VerifiedPackage, *links: VerifiedPackage) -> None:
        """Answer with a package, and with those on the way to it."""
        self.paths = {f"/v1/bootstrap-package/{each.content.sequence}": each.package.serialize() for each in links}
        self.paths["/v1/bootstrap-package"] = package.package.serialize()

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def _bundle_document(authority: TestAuthority) -> str:
    der = authority.certificate.public_bytes(Encoding.DER)
    return json.dumps({"keys": [{"kty": "EC", "use": "x509-svid", "x5c": [base64.b64encode(der).decode()]}]})


class PeersTests(ManagerCase):
    """One peer."""

    def setUp(self) -> None:
        """Start SPIRE and the peer."""
        super().setUp()
        self.spire = RunningSpire("prod.example.org", entries=[entry("/svc/manager", admin=True)])
        self.stack.callback(self.spire.stop)
        self.spire.start()
        folder = make_folder("svc-peer-")
        self.stack.callback(remove_folder, folder)
        self.peer = Peer(folder)
        self.stack.callback(self.peer.stop)

    def polling(self) -> RunningManager:
        """Start a manager."""
        spire = {"server": f"127.0.0.1:{self.spire.port}", "spiffeSocketPath": self.spire.address, "every": "1s"}
        cluster = {"trustDomain": "prod.example.org", "spire": spire, "federation": {}}
        self.control_plane = f"127.0.0.1:{free_port()}"
        return self.manager(m2mAddr="0", controlPlaneAddr=self.control_plane, cluster=cluster)

    def node(self) -> Path:
        """Start the agent of a node, with a post-quantum issuer; returns the file of its roots."""
        issuer = RunningAuthority("prod.example.org")
        self.stack.callback(issuer.stop)
        issuer.start()
        agent = RunningAgent(self.spire.address, csi=False)
        self.stack.callback(agent.stop)
        path = agent.folder / "pq-bundle.json"
        agent.config["trustDomain"] = "prod.example.org"
        agent.config["pqBundle"] = {
            "issuer": issuer.pq_address,
            "issuerID": "spiffe://prod.example.org/svc/authority",
            "file": str(path),
            "controlPlane": self.control_plane,
        }
        agent.start()
        eventually(path.exists, what="the roots of the own trust domain")
        return path

    def write(self, package: VerifiedPackage, **spec: Any) -> None:
        """Make the object, or change it."""
        data = base64.b64encode(package.package.serialize()).decode()
        self.apply(bootstrapPackage=data, **spec)

    def apply(self, **spec: Any) -> None:
        """Make the object with a spec, or change it."""
        given = {"trustDomain": PARTNER.name, "m2mEndpoint": self.peer.endpoint, **spec}
        body = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcForeignCluster", "metadata": {"name": "partner"}}
        self.server.kubectl("apply", "-f", "-", data=json.dumps({**body, "spec": given}))

    def status(self) -> dict[str, Any]:
        """The status of the peer; empty where there is none."""
        found: dict[str, Any] = json.loads(self.server.kubectl("get", "svcforeigncluster", "partner", "-o", "json"))
        return found.get("status") or {}

    def until(self, kind: str, *wanted: str) -> dict[str, Any]:
        """Wait for status and reason of a condition; returns the status of the object."""

        def held() -> Any:
            status = self.status()
            conditions = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}
            return status if conditions.get(kind) == wanted else False

        return dict(eventually(held, what=f"{kind} {wanted}"))

    def test_polled(self) -> None:
        """A package is pinned, the next one follows it, and new roots by the package that introduced them."""
        manager = self.polling()
        first = self.peer.package(age=60)
        self.peer.serve(self.peer.package(age=30))
        self.write(first, expectedFingerprint=first.content.fingerprint.digits)
        status = self.until("ContinuityVerified", "True", "Working")
        self.assertEqual(("working", 1), (status["continuity"], status["served"]["sequence"]))
        self.assertEqual(status["served"]["issuedAt"], status["pinned"]["issuedAt"])
        self.until("EndpointReachable", "True", "Reached")
        self.until("Ready", "True", "Federated")
        self.peer.serve(self.peer.package(2), self.peer.package(2, introduced=True, age=10))
        second = eventually(lambda: (found := self.status())["pinned"]["sequence"] == 2 and found, 60)
        self.assertEqual(roots(2).fingerprint(PARTNER).grouped, second["pinned"]["fingerprint"])
        pinned = manager.records("svc.manager.peer.pinned")
        self.assertEqual(
            [(1, None), (2, first.content.fingerprint.grouped)],
            [(each["attributes"]["sequence"], each["attributes"].get("former_fingerprint")) for each in pinned],
        )
        self.assertLessEqual(2, manager.value("bundle_exchange_total", direction="pull", result="success"))

    def bundles(self) -> dict[str, list[str]]:
        """The bundles of other trust domains that SPIRE has: their roots in base64, by the name."""
        listed = json.loads(self.spire.server("bundle", "list", "-output", "json"))["bundles"]
        return {each["trust_domain"]: [root["asn1"] for root in each["x509_authorities"]] for each in listed}

    def federating(self) -> dict[str, list[str]]:
        """The trust domains with which each entry of the manager federates, by the path of its SPIFFE ID."""
        entries = json.loads(self.spire.server("entry", "show", "-output", "json"))["entries"]
        found = [each for each in entries if each["id"].startswith(ENTRY_OWNER)]
        return {each["spiffe_id"]["path"]: each["federates_with"] for each in found}

    def test_bundle_written(self) -> None:
        """
        SPIRE gets the pinned bundle and entries federate, again after a loss of its data.

        With the object both are gone; the bundle of somebody else stays.
        """
        self.server.kubectl("create", "namespace", "shop")
        self.stack.callback(self.server.kubectl, "delete", "namespace", "shop", "--wait=false")
        self.server.kubectl("label", "namespace", "shop", f"{LABEL_INJECTION}={INJECTION_ENABLED}")
        self.server.kubectl("create", "serviceaccount", "default", "-n", "shop")
        manager = self.polling()
        root = base64.b64encode(self.peer.authority.certificate.public_bytes(Encoding.DER)).decode()
        self.peer.serve(self.peer.package(age=30))
        self.write(self.peer.package(age=60))
        self.until("BundleSynced", "True", "Written")
        self.assertEqual({PARTNER.name: [root]}, self.bundles())
        federated = {"/ns/shop/sa/default": [PARTNER.name], "/svc/m2m": [PARTNER.name]}
        eventually(lambda: self.federating() == federated)
        self.until("Ready", "True", "Federated")
        written = manager.value("bundle_exchange_total", direction="push", result="success")
        self.assertEqual(1, written)
        self.spire.kill("server")
        self.until("BundleSynced", "False", "SpireUnavailable")
        self.until("Ready", "False", "SpireUnavailable")
        self.spire.lose_data()
        eventually(lambda: self.bundles() == {PARTNER.name: [root]}, 60)
        eventually(lambda: self.federating() == federated)
        self.until("BundleSynced", "True", "Written")
        foreign = self.spire.folder / "foreign.json"
        foreign.write_text(self.spire.bundle())
        self.spire.server(
            "bundle", "set", "-id", "spiffe://foreign.example", "-format", "spiffe", "-path", str(foreign)
        )
        self.server.kubectl("delete", "svcforeignclusters", "partner")
        eventually(lambda: set(self.bundles()) == {"foreign.example"})
        eventually(lambda: self.federating() == {path: [] for path in federated})
        self.assertLessEqual(written + 2, manager.value("bundle_exchange_total", direction="push", result="success"))
        self.assertLessEqual(1, manager.value("bundle_exchange_total", direction="push", result="error"))

    def test_roots_on_nodes(self) -> None:
        """
        Leaves of a peer are verified on the nodes 10 s after its roots are pinned, and no more when it is deleted.

        Roots that begin anew with a lower sequence, and a peer that comes back, are no old copies for verifiers.
        """
        issuers = [PqIssuer.create(PARTNER, utc_now(), timedelta(days=30), os.urandom) for _number in range(2)]
        first, second = (X509Bundle.from_certificates(PARTNER, [each.certificate]) for each in issuers)
        self.polling()
        path = self.node()
        verifier = read_pq_bundles(path)

        def until_trusted(wanted: X509Bundle) -> float:
            began = time.monotonic()

            def trusted() -> bool:
                nonlocal verifier
                verifier = verifier.advanced_to(read_pq_bundles(path))
                entry = verifier.entries.get(PARTNER)
                return entry is not None and entry.bundle.certificates == wanted.certificates

            eventually(trusted, what="the roots of the peer on the node")
            return time.monotonic() - began

        self.peer.serve(self.peer.package(age=30, pq=PqBundle(3, first)))
        self.write(self.peer.package(age=60, pq=PqBundle(3, first)))
        self.until("ContinuityVerified", "True", "Working")
        self.assertLess(until_trusted(first), 10.0)
        self.assertIn(TrustDomain("prod.example.org"), verifier.entries)
        other = self.peer.package(2, age=20, pq=PqBundle(1, second))
        self.peer.serve(other)
        self.write(other, rebootstrap={"token": "t", "force": True})
        eventually(lambda: self.status().get("observedRebootstrapToken") == "t")
        self.assertLess(until_trusted(second), 10.0)
        self.server.kubectl("delete", "svcforeignclusters", "partner")
        self.assertLess(until_trusted(X509Bundle(PARTNER)), 10.0)
        self.write(other)
        self.until("ContinuityVerified", "True", "Working")
        self.assertLess(until_trusted(second), 10.0)

    def test_deleted_without_manager(self) -> None:
        """The bundle of a peer that is deleted while there is no manager goes when there is one again."""
        manager = self.polling()
        self.peer.serve(self.peer.package(age=30))
        self.write(self.peer.package(age=60))
        eventually(lambda: self.federating().get("/svc/m2m") == [PARTNER.name], 60)
        manager.stop()
        self.server.kubectl("delete", "svcforeignclusters", "partner")
        self.polling()
        eventually(lambda: self.bundles() == {}, 60)
        eventually(lambda: self.federating().get("/svc/m2m") == [])

    def test_reference(self) -> None:
        """By a fingerprint alone, the package with it is fetched and pinned; no other, and no redirect is followed."""
        manager = self.polling()
        package, stranger = self.peer.package(age=30), self.peer.package(2)
        self.peer.paths = {"/v1/bootstrap-package": (302, "/elsewhere"), "/elsewhere": package.package.serialize()}
        self.apply(expectedFingerprint=stranger.content.fingerprint.digits)
        self.until("PackageFetched", "False", "PeerUnavailable")
        self.until("FingerprintMatched", "Unknown", "NotPinned")
        self.assertNotIn("/elsewhere", self.peer.asked)
        self.peer.serve(package)
        self.apply(expectedFingerprint=str(stranger.package.reference))
        status = self.until("FingerprintMatched", "False", "FingerprintMismatch")
        self.assertEqual((None, 1), (status.get("pinned"), status["served"]["sequence"]))
        self.assertEqual([], manager.records("svc.manager.peer.pinned"))
        self.assertLessEqual(2, manager.value("bundle_exchange_total", direction="pull", result="error"))
        self.apply(expectedFingerprint=package.content.fingerprint.digits)
        status = self.until("ContinuityVerified", "True", "Working")
        self.assertEqual(package.content.fingerprint.grouped, status["pinned"]["fingerprint"])
        (record,) = manager.records("svc.manager.peer.pinned")
        self.assertEqual(package.content.fingerprint.grouped, record["attributes"]["fingerprint"])

    def test_refused(self) -> None:
        """A rollback is refused, a redirect is not followed, and a token begins anew with what the object says."""
        manager = self.polling()
        first = self.peer.package(age=30)
        self.peer.serve(self.peer.package(age=60))
        self.write(first)
        status = self.until("ContinuityVerified", "False", "Broken")
        self.assertEqual(first.content.fingerprint.grouped, status["pinned"]["fingerprint"])
        self.peer.paths = {"/v1/bootstrap-package": (302, "/elsewhere"), "/elsewhere": first.package.serialize()}
        other = self.peer.package(2, age=20)
        self.write(other, rebootstrap={"token": "t"})
        status = self.until("EndpointReachable", "False", "PeerUnavailable")
        self.assertEqual(("t", 2), (status["observedRebootstrapToken"], status["pinned"]["sequence"]))
        self.assertNotIn("/elsewhere", self.peer.asked)
        self.assertTrue(manager.records("svc.manager.peer.pinned")[-1]["attributes"]["rebootstrap"])
        self.assertLessEqual(2, manager.value("bundle_exchange_total", direction="pull", result="error"))
