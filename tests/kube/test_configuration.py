"""Tests of :mod:`svc.kube.configuration`: which cluster, and as whom."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from clusters.kubernetes import CertificateAuthority
from svc.kube.configuration import configured
from svc.kube.errors import KubernetesError
from tests.peers.folders import short_folder

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class ConfigurationTests(SynchronousTestCase):
    """Files in a folder of their own."""

    def setUp(self) -> None:
        """Make a folder for the configuration, and one for temporary files."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)
        self.authority = CertificateAuthority(self.folder / "pki")
        self.authority.issue("admin", "admin")
        self.account = self.folder / "account"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.patch(tempfile, "tempdir", str(self.temporary))

    def kubeconfig(self, name: str, server: str = "https://127.0.0.1:1") -> Path:
        """Write a kubeconfig of a context named ``svc``."""
        return self.authority.kubeconfig(self.folder / name, server, "admin")

    def pod(self) -> None:
        """Write what the kubelet mounts into a pod."""
        self.account.mkdir()
        (self.account / "token").write_text("first")
        (self.account / "ca.crt").write_bytes((self.authority.folder / "ca.crt").read_bytes())

    def configuration(self, kubeconfig: str = "", context: str = "", **environment: str) -> Any:
        """Read the configuration that results."""

        async def read() -> Any:
            way = await configured(kubeconfig, context, environment=environment, service_account=self.account)
            await way.api.close()
            return way.api.configuration

        return asyncio.run(read())

    def unusable(self, kubeconfig: str = "", context: str = "", **environment: str) -> str:
        """The sentence of a refusal."""
        with self.assertRaises(KubernetesError) as caught:
            self.configuration(kubeconfig, context, **environment)
        self.assertEqual("kubeconfig_unusable", caught.exception.reason)
        return str(caught.exception)

    def test_order(self) -> None:
        """The file that is named, then KUBECONFIG, then the file in the home folder, then the service account."""
        self.pod()
        named, by_variable = self.kubeconfig("named", "https://named"), self.kubeconfig("variable", "https://variable")
        (self.folder / ".kube").mkdir()
        at_home = self.kubeconfig(".kube/config", "https://home")
        given: Mapping[str, str] = {"HOME": str(self.folder), "KUBECONFIG": str(by_variable), **POD}
        self.assertEqual("https://named", self.configuration(str(named), **given).host)
        self.assertEqual("https://variable", self.configuration(**given).host)
        self.assertEqual("https://home", self.configuration(**{**given, "KUBECONFIG": ""}).host)
        at_home.unlink()
        self.assertEqual("https://10.96.0.1:443", self.configuration(**{**given, "KUBECONFIG": ""}).host)

    def test_several_files(self) -> None:
        """KUBECONFIG may name several files; those that are missing do not count."""
        paths = f"{self.folder / 'missing'}:{self.kubeconfig('here', 'https://here')}"
        self.assertEqual("https://here", self.configuration(KUBECONFIG=paths).host)

    def test_contexts(self) -> None:
        """The current context counts, or the one that is named; one that is not there is refused."""
        path = self.kubeconfig("two", "https://first")
        content = json.loads(path.read_text())
        content["clusters"].append({"name": "other", "cluster": {"server": "https://second"}})
        content["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "admin"}})
        path.write_text(json.dumps(content))
        self.assertEqual("https://first", self.configuration(str(path)).host)
        self.assertEqual("https://second", self.configuration(str(path), "other").host)
        self.assertIn("nowhere", self.unusable(str(path), "nowhere"))

    def test_address_of_version_6(self) -> None:
        """The address of the API server may be one of IPv6."""
        self.pod()
        found = self.configuration(HOME="/proc/nonexistent", **{**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"})
        self.assertEqual("https://[fd00::1]:443", found.host)

    def test_nothing(self) -> None:
        """Without a kubeconfig and outside of a pod the file that is missing is named; so is one that was named."""
        self.assertIn("/proc/nonexistent/.kube/config", self.unusable(HOME="/proc/nonexistent"))
        self.pod()
        self.assertIn("/proc/nonexistent/file", self.unusable("/proc/nonexistent/file", **POD))

    def test_no_kubeconfig(self) -> None:
        """What is no kubeconfig, names no cluster or has a damaged certificate is refused with the name of the file."""
        damaged = json.loads(self.kubeconfig("good").read_text())
        damaged["users"][0]["user"]["client-certificate-data"] = "AAAA"
        bad = self.folder / "bad"
        for text in ("", "text", "[1, 2]", "a: [", "{}", "\x00", "apiVersion: v1", json.dumps(damaged)):
            bad.write_text(text)
            self.assertIn(str(bad), self.unusable(str(bad)), text)
        bad.unlink()
        bad.mkdir()
        self.assertIn(str(bad), self.unusable(str(bad)))

    def test_damaged_pod(self) -> None:
        """The certificates of a service account that are missing or damaged are refused."""
        self.pod()
        for damage in (lambda path: path.write_text("none"), lambda path: path.unlink()):
            damage(self.account / "ca.crt")
            self.assertIn(str(self.account), self.unusable(HOME="/proc/nonexistent", **POD))

    def test_no_key_is_left(self) -> None:
        """The key of a kubeconfig is in no file when the client has been made, which can be made once more."""
        path = self.kubeconfig("good")
        for _ in range(2):
            self.configuration(str(path))
            self.assertEqual([], list(self.temporary.iterdir()))

    def test_token_is_replaced(self) -> None:
        """The token of a service account is read for each request; one that cannot be read is a refusal."""
        self.pod()

        async def tokens() -> list[str]:
            way = await configured(environment={"HOME": "/", **POD}, service_account=self.account)
            found = []
            for text in ("first", "second\n"):
                (self.account / "token").write_text(text)
                found.append(await way.credentials.authorization())
            (self.account / "token").unlink()
            with self.assertRaises(KubernetesError):
                await way.credentials.authorization()
            await way.api.close()
            return found

        self.assertEqual(["Bearer first", "Bearer second"], asyncio.run(tokens()))
