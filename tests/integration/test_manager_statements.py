"""Central statements of real managers: a real API server with tokens that are bound to pods, SPIRE, and the issuer."""

from __future__ import annotations

import json
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

from cryptography import x509

from svc.envelope.envelope import Envelope
from svc.envelope.profile import Profile
from svc.identity import BundleSet, SpiffeID, TrustDomain, X509Bundle, verify_svid
from svc.naming import INJECTION_ENABLED, LABEL_COMPARTMENT, LABEL_INJECTED
from svc.notary.statement import SelfIssued, StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.strictyaml import json_text
from svc.workload.pqfile import read_pq_bundles
from tests.integration.test_manager import RunningManager
from tests.integration.test_manager_entries import EntriesCase
from tests.integration.test_spire import issuer_beside
from tests.manager.policies.objects import policy, rules
from tests.peers import webapp
from tests.peers.programs import other_python, svc
from tests.peers.proxy import RunningProxy
from tests.peers.spire import entry
from tests.peers.waiting import eventually, free_port

MANAGER: Final = SpiffeID.parse("spiffe://example.org/svc/manager")
DIGEST: Final = "sha256:" + "ab" * 32
AUDIENCE: Final = "svc-manager"


class Answer:
    """What a workload got, and when."""

    def __init__(self, code: int, tag: str, body: bytes) -> None:
        self.code, self.tag, self.body = code, tag, body
        self.at = time.monotonic()

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of a refusal."""
        return self.code, json.loads(self.body)["code"]


class StatementCase(EntriesCase):
    """A manager that signs, pods of two namespaces, and their SVIDs."""

    def setUp(self) -> None:
        """Start the issuer and the manager."""
        super().setUp()
        issuer_port = free_port()
        self.issuer = issuer_beside(self.stack, self.spire, listen=f"127.0.0.1:{issuer_port}")
        self.pay = self.namespace(INJECTION_ENABLED)
        for namespace, name in ((self.shop, "api"), (self.shop, "web"), (self.pay, "api")):
            self.account(namespace, name)
        self.port = free_port()
        injection = {
            "image": "svc:1",
            "pqIssuer": f"127.0.0.1:{issuer_port}",
            "pqIssuerID": "spiffe://example.org/*",
        }
        spire = {"server": f"127.0.0.1:{self.spire.port}", "spiffeSocketPath": self.spire.address, "every": "1s"}
        cluster = {"trustDomain": "example.org", "spire": spire, "injection": injection}
        self.issuing = RunningManager(self.server, cluster=cluster, controlPlaneAddr=f"127.0.0.1:{self.port}")
        self.stack.callback(self.issuing.stop)
        self.issuing.start()
        self.pool = ThreadPoolExecutor(2)
        self.stack.callback(self.pool.shutdown)
        self.svids: dict[str, tuple[Path, Path]] = {}

    def pod(self, namespace: str, name: str, account: str = "api") -> str:
        """Make a pod on a node that there is not, as the webhook leaves it; returns its UID."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {LABEL_INJECTED: "true", LABEL_COMPARTMENT: "DE-S-ALPHA", "app": name},
            },
            "spec": {
                "serviceAccountName": account,
                "automountServiceAccountToken": False,
                "nodeName": "n1",
                "containers": [{"name": "api", "image": "reg/api:1"}],
            },
        }
        made = json.loads(self.server.kubectl("create", "-o", "json", "-f", "-", data=json.dumps(body)))
        self.stack.callback(self.delete, namespace, name)
        return str(made["metadata"]["uid"])

    def delete(self, namespace: str, name: str) -> None:
        """Delete a pod, as its kubelet does at last."""
        options = ("--grace-period=0", "--force", "--ignore-not-found")
        self.server.kubectl("delete", "pod", name, "-n", namespace, *options)

    def token(self, namespace: str, pod: str, *, account: str = "api", audience: str = AUDIENCE) -> str:
        """Get a token that is bound to a pod, as its kubelet does."""
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}") if pod else ()
        return self.server.kubectl(
            "create", "token", account, "-n", namespace, f"--audience={audience}", *bound
        ).strip()

    def svid(self, path: str) -> tuple[Path, Path]:
        """The SVID of a path, with one key for the whole test."""
        if path not in self.svids:
            self.svids[path] = self.spire.mint(path, self.spire.folder / uuid4().hex)
        return self.svids[path]

    def ask(self, token: str, path: str = "", *, tag: str = "", wait: int = 0) -> Answer:
        """Ask as the workload with a SPIFFE ID, by default the service account ``api`` of the first namespace."""
        context = ssl.create_default_context(cadata=self.spire.bundle("pem"))
        context.check_hostname = False
        context.load_cert_chain(*self.svid(path or f"/ns/{self.shop}/sa/api"))
        headers = {"Content-Type": "application/json"}
        headers |= {"If-None-Match": tag, "Prefer": f"wait={wait}"} if tag else {}
        connection = HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        try:
            connection.request("POST", "/v1/statement", json.dumps({"token": token}), headers)
            response = connection.getresponse()
            return Answer(response.status, response.getheader("ETag", ""), response.read())
        finally:
            connection.close()

    def until_answered(self, token: str, path: str = "") -> Answer:
        """Ask until there is a statement: the manager may not have read everything, or its leaf."""

        def answered() -> Answer | None:
            try:
                found = self.ask(token, path)
            except (OSError, HTTPException):
                return None
            return found if found.code == 200 else None

        return eventually(answered, what="a statement")

    def verified(self, answer: Answer, path: str = "") -> StatementEvidence:
        """Verify a statement as a client of the workload does, which accepts those of the manager alone."""
        self.assertEqual(200, answer.code, answer.body)
        certificate, _key = self.svid(path or f"/ns/{self.shop}/sa/api")
        domain = TrustDomain.parse("example.org")
        roots = x509.load_pem_x509_certificates(self.spire.bundle("pem").encode())
        bundles = BundleSet.of(X509Bundle.from_certificates(domain, roots))
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
        now = datetime.now(UTC)
        return verify_statement(
            Envelope.parse(answer.body),
            expected_id=None,
            profile=Profile.HYBRID,
            anchors=Anchors(bundles, read_pq_bundles(str(self.issuer.pq_bundle_path)).bundle_set()),
            now=now,
            peer=verify_svid(chain, bundles, now),
            issuers=(MANAGER,),
            self_issued=SelfIssued.REFUSE,
        )


class StatementTests(StatementCase):
    """What workloads get."""

    def test_own_pod(self) -> None:
        """The facts of the API server, by the manager, for at most ten minutes; each change is there within 10 s."""
        uid = self.pod(self.shop, "api-1")
        token = self.token(self.shop, "api-1")
        first = self.until_answered(token)
        evidence = self.verified(first)
        facts: Any = evidence.claims["svc"]
        self.assertEqual(
            (MANAGER, False, True, "n1", "api", "api-1", uid),
            (evidence.issuer, evidence.self_issued, evidence.post_quantum)
            + tuple(facts[each] for each in ("node", "serviceAccount", "podName", "podUID")),
        )
        self.assertEqual({LABEL_COMPARTMENT: "DE-S-ALPHA"}, facts["labels"])
        self.assertEqual([None], [each["imageDigest"] for each in facts["containers"]])
        self.assertLessEqual(evidence.expires - evidence.issued, timedelta(minutes=10))
        status = {"containerStatuses": [_running("api", f"reg/api@{DIGEST}")]}
        for change, read, expected in (
            (("patch", "pod", "api-1", "--subresource=status", "-p", json.dumps({"status": status})),
             lambda facts: facts["containers"][0]["imageDigest"], DIGEST),
            (("label", "pod", "api-1", "--overwrite", f"{LABEL_COMPARTMENT}=DE-S-BETA"),
             lambda facts: facts["labels"][LABEL_COMPARTMENT], "DE-S-BETA"),
        ):  # fmt: skip
            waiting = self.pool.submit(self.ask, token, tag=first.tag, wait=30)
            time.sleep(1)
            self.assertFalse(waiting.done())
            self.server.kubectl(*change, "-n", self.shop)
            applied = time.monotonic()
            first = waiting.result(40)
            self.assertLess(first.at - applied, 10)
            self.assertEqual(expected, read(self.verified(first).claims["svc"]))
        self.assertEqual(304, self.ask(token, tag=first.tag).code)
        waiting = self.pool.submit(self.ask, token, tag=first.tag, wait=30)
        time.sleep(1)
        self.delete(self.shop, "api-1")
        self.assertEqual(403, waiting.result(40).code)
        self.assertEqual(403, self.ask(token).code)
        self.assertEqual(3.0, self.issuing.value("statement_requests_total", result="sent"))
        self.assertEqual(2.0, self.issuing.value("statement_requests_total", result="denied"))

    def test_refused(self) -> None:
        """Tokens of another audience, namespace, account or pod than the identity says; each is recorded."""
        for namespace, name, account in (
            (self.shop, "api-1", "api"),
            (self.shop, "web-1", "web"),
            (self.pay, "api-1", "api"),
        ):
            self.pod(namespace, name, account)
        self.until_answered(self.token(self.shop, "api-1"))
        for reason, token in (
            ("statement_token_refused", self.token(self.shop, "api-1", audience="https://example.org")),
            ("statement_token_refused", "x.y.z"),
            ("statement_token_account", self.token(self.pay, "api-1")),
            ("statement_token_account", self.token(self.shop, "web-1", account="web")),
            ("statement_token_unbound", self.token(self.shop, "")),
        ):
            self.assertEqual((403, reason), self.ask(token).refusal)
        other = self.token(self.shop, "api-1")
        self.assertEqual((403, "statement_token_account"), self.ask(other, f"/ns/{self.pay}/sa/api").refusal)
        self.assertEqual((403, "statement_caller_unknown"), self.ask(other, "/svc/agent").refusal)
        denied = eventually(lambda: self.issuing.records("svc.manager.statement.denied"))
        self.assertEqual("security", denied[0]["event"]["category"])
        self.assertNotIn(other, self.issuing.log)
        # Another pod of the same name: the token is bound to the UID of the one before. The API server may remember it.
        self.delete(self.shop, "api-1")
        self.pod(self.shop, "api-1")
        self.assertIn(self.ask(other).refusal, [(403, "statement_token_refused"), (403, "statement_pod_unknown")])
        self.assertEqual(200, self.ask(self.token(self.shop, "api-1")).code)


class ProxyTests(StatementCase):
    """A proxy whose pod proves itself, and what its clients see."""

    def test_curl(self) -> None:
        """``svc curl`` shows the facts of the central issuer; without a manager, those of the workload."""
        path = f"/ns/{self.shop}/sa/api"
        # Processes get all SVIDs of their program: the manager shall have one.
        self.python = other_python(self.spire.folder / "python")
        self.spire.add(entry(path, program=self.python, hint="api"))
        self.pod(self.shop, "api-1")
        patch = {"status": {"containerStatuses": [_running("api", f"reg/api@{DIGEST}")]}}
        command = ("patch", "pod", "api-1", "--subresource=status", "-n", self.shop, "-p", json.dumps(patch))
        self.server.kubectl(*command)
        token = self.issuer.folder / "token"
        token.write_text(self.token(self.shop, "api-1"))
        self.until_answered(token.read_text())
        policies = self.issuer.folder / "cluster.yaml"
        policies.write_text(json_text(policy("all", authorization=rules()).document))
        proxy = self.proxy(token, policies)
        shown = self.curl(proxy)
        self.assertIn(str(MANAGER), shown)
        self.assertNotIn("self-asserted", shown)
        for expected in ("n1", "api-1", DIGEST, "DE-S-ALPHA"):
            self.assertIn(expected, shown)
        self.assertNotIn("invented", shown)
        issued = proxy.records("svc.notary.generation.issued")
        self.assertEqual([str(MANAGER)], [each["attributes"]["issuer"] for each in issued], "none before it")
        (identity,) = proxy.page("/status")[1]["identities"]
        self.assertEqual(str(MANAGER), identity["statementIssuer"])
        # The manager is away: the last one serves.
        self.issuing.stop()
        eventually(lambda: proxy.records("svc.notary.central_issuer.lost"))
        self.assertNotIn("self-asserted", self.curl(proxy))
        # Where it was never there: the workload's own.
        other = self.proxy(token, policies)
        shown = self.curl(other)
        self.assertIn("invented", shown)
        self.assertIn("self-asserted", shown)

    def proxy(self, token: Path, policies: Path) -> RunningProxy:
        """Start a proxy, which says another thing of its pod."""
        beside: Any = SimpleNamespace(
            trust_domain="example.org", address=self.spire.address, pq_address=self.issuer.pq_address
        )
        settings = {
            "controlPlane": f"127.0.0.1:{self.port}",
            "controlPlaneToken": str(token),
            "spiffeHint": "api",
            "policy": {"default": "allow", "clusterFiles": [str(policies)]},
            "workload": {"podName": "invented"},
        }
        proxy = RunningProxy(beside, f"127.0.0.1:{webapp.start(self.stack)}", settings=settings, python=self.python)
        self.stack.callback(proxy.stop)
        return proxy.start()

    def curl(self, proxy: RunningProxy) -> str:
        """What ``--print-workload`` shows."""
        ran = svc(
            *("curl", "--print-workload", "--spiffe-socket-path", self.spire.address),
            *("--pq-bundle", self.issuer.pq_bundle_path, f"https://127.0.0.1:{proxy.port}/"),
        )
        self.assertEqual(0, ran.returncode, ran.stderr)
        return ran.stderr.decode()


def _running(name: str, image_id: str) -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {"name": name, "image": "reg/api:1", "imageID": image_id, "ready": True, "restartCount": 0, "state": state}
