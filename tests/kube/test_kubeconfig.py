"""Tests of :mod:`svc.kube.kubeconfig`; what requests a kubeconfig leads to is compared with kubectl elsewhere."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.kube.errors import KubernetesError
from svc.kube.kubeconfig import Access, read_access

_LEAVES = st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(["", "a", "https://a", "v1", "AAAA", "/"])
_KEYS = [
    "name",
    "server",
    "proxy-url",
    "extensions",
    "extension",
    "token",
    "tokenFile",
    "exec",
    "command",
    "args",
    "env",
]
_KEYS += ["apiVersion", "interactiveMode", "as", "as-groups", "as-user-extra", "auth-provider", "config", "client-key"]
_PARTS = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_KEYS), inner), max_leaves=12
)


def kubeconfig(user: Any = None, cluster: Any = None) -> dict[str, Any]:
    """A document with a context ``a``."""
    return {
        "current-context": "a",
        "clusters": [{"name": "c", "cluster": {"server": "https://api", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    }


def id_token(ends: float) -> str:
    """What is read of an OIDC token."""
    return f"e30.{base64.urlsafe_b64encode(json.dumps({'exp': ends}).encode()).decode().rstrip('=')}.x"


class KubeconfigTests(SynchronousTestCase):
    """Documents in a file."""

    def read(self, document: Any) -> Access | None:
        """Read a document, as YAML or as what becomes JSON."""
        path = Path(self.mktemp())
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_access([str(path)])

    def refused(self, document: Any) -> str:
        """The sentence of a refusal."""
        with self.assertRaises(KubernetesError) as caught:
            self.read(document)
        self.assertEqual("kubeconfig_unusable", caught.exception.reason)
        return str(caught.exception)

    def test_yaml(self) -> None:
        """Anchors and dates without quotes are read as kubectl reads them."""
        document = """
            current-context: 2026-01-01
            clusters: [{name: c, cluster: &c {server: "https://api:6443/"}}, {name: d, cluster: *c}]
            contexts: [{name: 2026-01-01, context: {cluster: d}}]
        """
        self.assertEqual(Access(context="2026-01-01", server="https://api:6443"), self.read(document))

    def test_empty(self) -> None:
        """What has nothing is nothing, unless a context was named."""
        for document in ("", "{}", {"apiVersion": "v1", "kind": "Config", "clusters": None, "users": []}):
            self.assertIsNone(self.read(document))
        with self.assertRaises(KubernetesError):
            read_access([], "a")

    def test_defects(self) -> None:
        """Each defect is named, with the entry that has it."""
        for document, expected in (
            ({"kind": "Pod"}, "it is v1 Pod, and no kubeconfig"),
            ({"clusters": {}}, "clusters is no list"),
            ({**kubeconfig(), "current-context": ""}, "none is the current one"),
            ({**kubeconfig(), "users": None}, "the user u, which is not there"),
            ({**kubeconfig(), "clusters": None}, "the cluster c, which is not there"),
            ({**kubeconfig(), "users": [{"name": "u"}, {"name": "u"}]}, "users has u twice"),
            (kubeconfig({"token": 1}), "token is no text; quote it"),
            (kubeconfig({"token": "a\nb"}), "user u: token has a line end"),
            (kubeconfig({"as": "a\rb"}), "user u: Impersonate-User has a line end"),
            (kubeconfig({"client-certificate-data": "?"}), "user u: client-certificate-data is no base64"),
            (kubeconfig({"exec": {}}), "user u: exec: apiVersion is missing"),
            (kubeconfig({"auth-provider": {"name": "gcp"}}), "auth-provider gcp is not supported"),
            (kubeconfig(cluster={"insecure-skip-tls-verify": "yes"}), "is neither true nor false"),
            (kubeconfig(cluster={"server": "https://api:99999"}), "Port out of range"),
            (kubeconfig(cluster={"server": "unix:///x"}), "server is unix:///x"),
        ):
            self.assertIn(expected, self.refused(document))

    def test_oidc(self) -> None:
        """An OIDC token is used until it ends; then its remedy is named."""
        provider = {"name": "oidc", "config": {"id-token": id_token(9e9)}}
        self.assertEqual(id_token(9e9), self.read(kubeconfig({"auth-provider": provider})).token)
        for token in (id_token(1), "a.b", "", "a.!.c"):
            provider = {"name": "oidc", "config": {"id-token": token}}
            self.assertIn("kubectl get --raw /version renews it", self.refused(kubeconfig({"auth-provider": provider})))

    @given(_PARTS, _PARTS, _PARTS)
    def test_anything(self, user: Any, cluster: Any, context: Any) -> None:
        """Whatever a document is, it is read or refused."""
        document = kubeconfig()
        document["users"][0]["user"] = user
        document["clusters"].append({"name": "d", "cluster": cluster})
        document["contexts"].append(context)
        document["contexts"][0]["context"]["cluster"] = "d" if isinstance(cluster, dict) else "c"
        try:
            self.assertEqual("a", self.read(document).context)
        except KubernetesError as error:
            self.assertEqual("kubeconfig_unusable", error.reason)
