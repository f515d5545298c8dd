"""The client on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

from svc.kube.client import Client, connect
from svc.kube.configuration import configured
from svc.kube.kinds import SECRETS, Kind
from tests.integration.kube_rig import CONFIGMAPS, SERVER, UNKNOWN, KubeCase, config_map
from tests.peers.apiserver import ApiServer

NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
REVIEWS = Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


class KubeClientTests(KubeCase):
    """One server for all."""

    def setUp(self) -> None:
        """Take the server."""
        self.server = SERVER.get()

    def test_objects(self) -> None:
        """Made, read, replaced, applied, listed and deleted; of two changes of one version the second is a conflict."""

        async def objects(client: Client, namespace: str) -> None:
            made = await client.create(CONFIGMAPS, config_map(namespace, "a", text="1"))
            self.assertEqual(made, await client.get(CONFIGMAPS, "a", namespace))
            await self.refused("kubernetes_conflict", client.create(CONFIGMAPS, config_map(namespace, "a")))
            changed = await client.replace(CONFIGMAPS, {**made, "data": {"text": "2"}})
            self.assertEqual({"text": "2"}, changed["data"])
            await self.refused("kubernetes_conflict", client.replace(CONFIGMAPS, made))
            body = {"metadata": {"name": "a", "namespace": namespace}, "data": {"text": "3"}}
            applied = await client.apply(CONFIGMAPS, body, manager="test")
            self.assertEqual({"text": "3"}, applied["data"])
            await client.create(CONFIGMAPS, config_map(namespace, "b"))
            found, version = await client.list(CONFIGMAPS, namespace)
            self.assertEqual(["a", "b"], [each["metadata"]["name"] for each in found])
            self.assertEqual({"ConfigMap"}, {each["kind"] for each in found})
            self.assertTrue(version.isdigit())
            await client.delete(CONFIGMAPS, "a", namespace)
            await self.refused("kubernetes_not_found", client.delete(CONFIGMAPS, "a", namespace))
            found, _version = await client.list(CONFIGMAPS, namespace)
            self.assertEqual(["b"], [each["metadata"]["name"] for each in found])

        self.play(self.server, objects)

    def test_pages_and_selectors(self) -> None:
        """A list of several pages has each object once; selectors choose."""

        async def pages(client: Client, namespace: str) -> None:
            for chunk in range(0, 520, 20):
                bodies = [config_map(namespace, f"c{number:03}") for number in range(chunk, chunk + 20)]
                for body in bodies:
                    body["metadata"]["labels"] = {"last": body["metadata"]["name"][-1]}
                await asyncio.gather(*(client.create(CONFIGMAPS, body) for body in bodies))
            names = [each["metadata"]["name"] for each in (await client.list(CONFIGMAPS, namespace))[0]]
            self.assertEqual([f"c{number:03}" for number in range(520)], names)
            found, _ = await client.list(CONFIGMAPS, namespace, labels="last=7")
            self.assertEqual(52, len(found))
            found, _ = await client.list(CONFIGMAPS, fields=f"metadata.name=c007,metadata.namespace={namespace}")
            self.assertEqual(1, len(found))

        self.play(self.server, pages)

    def test_nothing_there(self) -> None:
        """An object, a namespace and a kind that are not there are told apart."""

        async def missing(client: Client, namespace: str) -> None:
            error = await self.refused("kubernetes_not_found", client.get(SECRETS, "none", namespace))
            self.assertIn('secrets "none" not found', str(error))
            error = await self.refused("kubernetes_no_namespace", client.create(CONFIGMAPS, config_map("nowhere", "a")))
            self.assertIn("kubectl create namespace nowhere", error.hint)
            await self.refused("kubernetes_not_found", client.get(NAMESPACES, "nowhere"))
            for kind in (UNKNOWN, Kind("", "v1", "others", "Other")):
                error = await self.refused("kubernetes_no_kind", client.get(kind, "a", namespace))
                self.assertIn(str(kind), str(error))
                await self.refused("kubernetes_no_kind", client.list(kind, namespace))

        self.play(self.server, missing)

    def test_not_valid(self) -> None:
        """What the server finds invalid is refused with its explanation."""

        async def invalid(client: Client, namespace: str) -> None:
            error = await self.refused(
                "kubernetes_refused", client.create(CONFIGMAPS, config_map(namespace, "Not_A_Name"))
            )
            self.assertIn("Not_A_Name", str(error))

        self.play(self.server, invalid)

    def test_names(self) -> None:
        """A name or a namespace cannot lead to another object."""

        async def names(client: Client, namespace: str) -> None:
            for name in ("../secrets/x", "..", ".", "a?b=c", "a/b", "a%2fb", "a b", "a#b", "x" * 254):
                await self.refused("kubernetes_name", client.get(CONFIGMAPS, name, namespace))
                await self.refused("kubernetes_name", client.get(CONFIGMAPS, "a", name))
            for name in ("x" * 253, "system:role", "a\u00e4"):
                await self.refused("kubernetes_not_found", client.get(CONFIGMAPS, name, namespace))

        self.play(self.server, names)

    def test_forbidden(self) -> None:
        """What RBAC does not grant is refused with who may not do what."""

        async def forbidden(client: Client, namespace: str) -> None:
            error = await self.refused("kubernetes_forbidden", client.get(SECRETS, "a", namespace))
            self.assertIn('User "stranger" cannot get resource "secrets"', str(error))

        self.play(self.server, forbidden, self.server.credentials("stranger", "strangers"))

    def test_credentials_are_not_accepted(self) -> None:
        """A token that nobody issued is not accepted; no credentials at all are those of system:anonymous."""

        async def unknown(client: Client, namespace: str) -> None:
            error = await self.refused("kubernetes_credentials", client.get(CONFIGMAPS, "a", namespace))
            self.assertIn(self.server.url, str(error))

        async def anonymous(client: Client, namespace: str) -> None:
            error = await self.refused("kubernetes_forbidden", client.get(CONFIGMAPS, "a", namespace))
            self.assertIn("system:anonymous", str(error))

        self.play(self.server, unknown, self.kubeconfig(token="e30.e30.e30"))
        self.play(self.server, anonymous, self.kubeconfig(username=""))

    def kubeconfig(self, **user: str) -> Path:
        """A kubeconfig of another user."""
        content = json.loads(self.server.kubeconfig.read_text())
        content["users"][0]["user"] = user
        path: Path = self.server.folder / f"{'-'.join(user)}.kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def test_unreachable(self) -> None:
        """A server that does not run, and one of another CA, are unreachable; the address is named."""

        async def ask(kubeconfig: Path) -> str:
            async with aclosing(await connect(str(kubeconfig))) as client:
                return str(await self.refused("kubernetes_unreachable", client.get(NAMESPACES, "default")))

        other = ApiServer()
        self.addCleanup(other.stop)
        self.assertIn(other.url, asyncio.run(ask(other.kubeconfig)))
        content = json.loads(other.kubeconfig.read_text())
        content["clusters"][0]["cluster"]["server"] = self.server.url
        other.kubeconfig.write_text(json.dumps(content))
        found = asyncio.run(ask(other.kubeconfig))
        self.assertIn(self.server.url, found)
        self.assertIn("certificate", found.lower())

    def test_service_account(self) -> None:
        """In a pod the token is the current one of the file; that of a deleted account is not accepted any more."""
        folder = self.server.folder / "account"
        folder.mkdir()
        (folder / "ca.crt").write_bytes((self.server.folder / "pki" / "ca.crt").read_bytes())
        environment = {
            "HOME": "/proc/nonexistent",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
        }

        def become(namespace: str, name: str) -> None:
            self.server.kubectl("create", "serviceaccount", name, "-n", namespace)
            token = self.server.kubectl("create", "token", name, "-n", namespace)
            (folder / "new").write_text(token)
            (folder / "new").rename(folder / "token")

        async def in_pod(_client: Client, namespace: str) -> None:
            become(namespace, "first")
            way = await configured(environment=environment, service_account=folder)
            async with aclosing(Client(way)) as client:
                self.assertEqual(f"system:serviceaccount:{namespace}:first", await self.name_of(client))
                become(namespace, "second")
                self.assertEqual(f"system:serviceaccount:{namespace}:second", await self.name_of(client))
                self.server.kubectl("delete", "serviceaccount", "second", "-n", namespace)
                await self.refused("kubernetes_credentials", self.until_refused(client))

        self.play(self.server, in_pod)

    async def name_of(self, client: Client) -> Any:
        """Who the server says the client is."""
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.name, "metadata": {}}
        return (await client.create(REVIEWS, body))["status"]["userInfo"]["username"]

    async def until_refused(self, client: Client) -> None:
        """Ask again and again: the server remembers for 10 s that a token was good."""
        for _ in range(100):
            await self.name_of(client)
            await asyncio.sleep(0.5)

    def test_closed_watch(self) -> None:
        """A watch that is left early closes its connection, and the client goes on."""

        async def closed(client: Client, namespace: str) -> None:
            _, version = await client.list(CONFIGMAPS, namespace)
            await client.create(CONFIGMAPS, config_map(namespace, "a"))
            for _ in range(3):
                async with aclosing(client.watch(CONFIGMAPS, namespace, version)) as changes:
                    self.assertEqual("ADDED", (await anext(changes)).type)
            await client.get(CONFIGMAPS, "a", namespace)
            self.assertEqual(1, _connections(self.server.port))

        self.play(self.server, closed)


def _connections(port: int) -> int:
    """How many connections this process has to a port of this machine."""
    own = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            own.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and f"socket:[{row[9]}]" in own for row in rows)
