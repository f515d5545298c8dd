"""Injected pods on a real API server: its calls, its defaults, and the profile ``restricted`` of Pod Security."""

from __future__ import annotations

import base64
import copy
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from clusters.kubernetes import CertificateAuthority
from svc.injection import ReviewOutcome, review
from tests.injection.documents import SETTINGS, TRUST_DOMAIN, Document, golden, proxy_of
from tests.injection.expansion import loaded
from tests.integration.kube_rig import SERVER
from tests.peers.apiserver import ApiServer, ApiServerFailed
from tests.peers.waiting import PATIENCE, eventually

LOCKED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


def restricted(pod: Document) -> Document:
    """A pod whose own containers are within the profile, as one that can be created."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    spec["securityContext"] = POD
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        container["securityContext"] = LOCKED
        container.setdefault("image", "web:1")
    return {"apiVersion": "v1", "kind": "Pod", **pod}


class Webhooks:
    """
    An HTTPS server with two webhooks: ``/inject``, and ``/other``, which puts a container in front of ours.

    Attributes:
        outcomes: of the reviews so far.
    """

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority(folder)
        authority.issue("webhook", "webhook", sans=("127.0.0.1",))
        self.authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
        self.outcomes: list[ReviewOutcome] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "webhook.crt", folder / "webhook.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        """End it."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def configuration(self, namespace: str) -> Document:
        """Both webhooks, for one namespace."""

        def webhook(path: str) -> Document:
            url = f"https://127.0.0.1:{self.server.server_port}/{path}"
            return {
                "name": f"{path}.svc.internal",
                "clientConfig": {"url": url, "caBundle": self.authority},
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "reinvocationPolicy": "IfNeeded",
            }

        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [webhook("inject"), webhook("other")],
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outcomes = self.outcomes

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.startswith("/inject"):
                    answer, outcome = review(document, SETTINGS, TRUST_DOMAIN)
                    outcomes.append(outcome)
                else:
                    answer = _other(document)
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        return Handler


def _other(document: Document) -> Document:
    request = document["request"]
    response: Document = {"uid": request["uid"], "allowed": True}
    containers = request["object"]["spec"].get("initContainers", [])
    if containers and all(each["name"] != "other" for each in containers):
        other = {"name": "other", "image": "other:1", "securityContext": LOCKED}
        patch = json.dumps([{"op": "add", "path": "/spec/initContainers/0", "value": other}])
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "response": response}


class InjectedPodTests(SynchronousTestCase):
    """Pods in a namespace of the profile ``restricted``."""

    server: ApiServer

    def setUp(self) -> None:
        """Take the server, and make a namespace and its webhooks."""
        self.server = SERVER.get()
        self.namespace = f"t-{uuid4().hex[:8]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.namespace, "labels": labels}
        self._create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.webhooks = Webhooks(Path(self.mktemp()).absolute())
        self.addCleanup(self.webhooks.stop)
        self._create(self.webhooks.configuration(self.namespace))
        self.addCleanup(self.server.kubectl, "delete", "mutatingwebhookconfiguration", self.namespace)
        self._await_webhooks()

    def test_admitted(self) -> None:
        """Each pod is admitted, ours in front of what another webhook has added; its configuration is the proxy's."""
        for name, document in golden().items():
            if name == "left-alone" or "injected" not in document:
                continue
            self.webhooks.outcomes.clear()
            document["pod"]["metadata"]["name"] = name
            pod = self._pod(restricted(document["pod"]))
            names = [each["name"] for each in pod["spec"]["initContainers"]]
            own = [each["name"] for each in document["injected"]["spec"]["initContainers"][1:]]
            self.assertEqual(["svc-proxy", "other"], names[:2], name)
            self.assertEqual(sorted(own + ["other"] * ("other" not in own)), sorted(names[1:]), name)
            # Where it was there from the beginning, the other webhook has changed nothing.
            calls = [(each.result, each.injected, each.namespace) for each in self.webhooks.outcomes]
            self.assertEqual([("allowed", True, self.namespace)] * (1 if "other" in own else 2), calls, name)
            self.assertTrue(loaded(pod).listeners)
            for volume in document["injected"]["spec"]["volumes"]:
                if volume["name"].startswith("svc-"):
                    self.assertIn(volume["name"], {each["name"] for each in pod["spec"]["volumes"]})

    def test_again(self) -> None:
        """A pod as the API server keeps it, made again under another name, has the same proxy and volumes."""
        first = self._pod(restricted(golden()["init-containers"]["pod"]))
        metadata = {key: first["metadata"][key] for key in ("labels", "annotations")}
        again = self._pod({**first, "metadata": {"name": "again", **metadata}, "status": {}})
        self.assertEqual(proxy_of(first), proxy_of(again))
        for key in ("containers", "volumes", "initContainers"):
            self.assertEqual(first["spec"][key], again["spec"][key])

    def test_refused(self) -> None:
        """The message is shown to whoever makes the pod."""
        for document in golden().values():
            if "refused" in document:
                with self.assertRaises(ApiServerFailed) as caught:
                    self._pod(restricted(document["pod"]))
                self.assertIn(f"denied the request: {document['refused']['message']}; ", str(caught.exception))

    def test_profile(self) -> None:
        """The namespace enforces the profile: a pod outside it is refused for its own container alone."""
        pod = restricted(golden()["deployment"]["pod"])
        del pod["spec"]["containers"][0]["securityContext"]
        with self.assertRaises(ApiServerFailed) as caught:
            self._pod(pod)
        self.assertIn('container "web" must set', str(caught.exception))
        self.assertNotIn("svc-proxy", str(caught.exception))

    def test_short_grace(self) -> None:
        """Every grace is admitted: the sleep is never longer than Kubernetes allows."""
        for grace in (0, 1, 2, 7, 8):
            pod = restricted(golden()["deployment"]["pod"])
            pod["spec"]["terminationGracePeriodSeconds"] = grace
            [container] = self._pod(pod)["spec"]["containers"]
            self.assertEqual(grace > 1, "preStop" in container.get("lifecycle", {}))

    def test_large_pod(self) -> None:
        """A pod of 200 kB is admitted, and a dry run of it is known as one."""
        pod = restricted(golden()["deployment"]["pod"])
        pod["spec"]["containers"][0]["env"] = [{"name": f"V{number}", "value": "v" * 180} for number in range(1000)]
        self.assertGreater(len(json.dumps(pod)), 200_000)
        self.assertEqual("svc-proxy", proxy_of(self._pod(pod))["name"])
        self.webhooks.outcomes.clear()
        self.assertEqual("svc-proxy", proxy_of(self._pod(pod, "--dry-run=server"))["name"])
        self.assertEqual({True}, {each.dry_run for each in self.webhooks.outcomes})

    def _create(self, document: Document) -> None:
        self.server.kubectl("create", "-f", "-", data=json.dumps(document))

    def _pod(self, pod: Document, *flags: str) -> Any:
        data = json.dumps(pod)
        return json.loads(
            self.server.kubectl("-n", self.namespace, "create", *flags, "-o", "json", "-f", "-", data=data)
        )

    def _await_webhooks(self) -> None:
        """A configuration takes effect some time after it was made."""

        def called() -> bool:
            self._pod(restricted(golden()["deployment"]["pod"]), "--dry-run=server")
            return bool(self.webhooks.outcomes)

        eventually(called, PATIENCE, "the first call of the webhook")
