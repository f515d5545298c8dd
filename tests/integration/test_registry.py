"""The client of registries on a real docker-registry, with TLS and passwords."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from svc.install.registry.client import MANIFEST, RegistryClient
from svc.install.registry.credentials import Credentials
from tests.integration.registry_rig import CONFIG, Authority, RegistryCase, manifest, octets
from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.registry import PASSWORD, USERNAME, RunningRegistry, sha256
from tests.peers.waiting import Shared

KNOWN = Credentials(USERNAME, PASSWORD, source="test")


class _Servers:
    """One registry with TLS and passwords, one with neither."""

    def __init__(self, stack: ExitStack) -> None:
        self.authority = Authority(short_folder(stack))
        self.secured = RunningRegistry(stack, certificate=self.authority.server, password=True)
        self.plain = RunningRegistry(stack)


SERVERS = Shared(_Servers)


class PushAndPullTests(RegistryCase):
    """What one client pushes, it and others pull."""

    def setUp(self) -> None:
        """Take the registry with TLS and passwords."""
        super().setUp()
        self.servers = SERVERS.get()
        self.port = self.servers.secured.port

    def secured(self, **settings: Any) -> RegistryClient:
        """Make a client that knows authority and password."""
        return self.client(self.port, ca=self.servers.authority.file, **{"credentials": KNOWN, **settings})

    async def test_image(self) -> None:
        """An image is pushed in chunks out of a larger file, seen by skopeo as it is, and pulled by digest."""
        client = self.secured(chunk=300_000)
        await client.check()
        await client.check_push("acme/svc")
        data, progress = octets(1_000_001), []
        layer = self.blob(data, before=b"x" * 512)
        self.assertFalse(await client.has_blob("acme/svc", layer.digest))
        self.assertEqual("sent", await client.push_blob("acme/svc", layer, progress=progress.append))
        self.assertEqual([300_000, 600_000, 900_000, 1_000_001], progress)
        self.assertEqual("present", await client.push_blob("acme/svc", layer))
        self.assertEqual("sent", await client.push_blob("acme/svc", self.blob(CONFIG)))
        pushed = manifest(layer)
        self.assertIsNone(await client.resolve("acme/svc", "1.0"))
        self.assertEqual(sha256(pushed), await client.push_manifest("acme/svc", "1.0", pushed, MANIFEST))
        self.assertEqual(sha256(pushed), await client.resolve("acme/svc", "1.0"))
        self.assertEqual(pushed, (await client.pull_manifest("acme/svc", sha256(pushed))).data)
        path, progress = self.folder / "pulled", []
        await client.pull_blob("acme/svc", layer.digest, layer.size, path, progress=progress.append)
        self.assertEqual(data, path.read_bytes())
        self.assertEqual((sorted(set(progress)), layer.size), (progress, progress[-1]))

        image = f"docker://127.0.0.1:{self.port}/acme/svc:1.0"
        options = [f"--creds={USERNAME}:{PASSWORD}", "--tls-verify=false"]
        ran = run([find("skopeo"), "inspect", "--raw", *options, image])
        self.assertEqual(pushed, ran.stdout, ran.stderr)
        copy = [find("skopeo"), "--insecure-policy", "copy", f"--src-{options[0][2:]}", "--src-tls-verify=false"]
        ran = run([*copy, image, f"dir:{self.folder / 'copied'}"])
        self.assertEqual(data, (self.folder / "copied" / layer.digest[7:]).read_bytes(), ran.stderr)

    async def test_mounted(self) -> None:
        """Content of another repository is not sent again; where it is not there, it is sent."""
        client = self.secured()
        blob, other = self.blob(octets(5000, 2)), self.blob(octets(5000, 3))
        await client.push_blob("acme/one", blob)
        self.assertEqual("mounted", await client.push_blob("acme/two", blob, mount_from="acme/one"))
        self.assertTrue(await client.has_blob("acme/two", blob.digest))
        self.assertEqual("sent", await client.push_blob("acme/two", other, mount_from="acme/one"))

    async def test_wrong_accounts(self) -> None:
        """Without the password nothing is read or written, and no error has it."""
        for credentials in (None, replace(KNOWN, password="other secret")):
            client = self.secured(credentials=credentials)
            for working in (
                client.check(),
                client.check_push("acme/svc"),
                client.resolve("acme/svc", "1.0"),
                client.push_blob("acme/svc", self.blob(b"1")),
            ):
                error = await self.refused("registry_unauthorized", working)
                self.assertNotIn("secret", f"{error}{error.hint}{error.evidence}{credentials!r}")

    async def test_trust(self) -> None:
        """A registry whose certificate leads to another root, or names another host, is refused before any request."""
        unknown = self.client(self.port, plain=False, credentials=KNOWN)
        await self.refused("registry_certificate_invalid", unknown.check())
        misnamed = self.client(self.port, "127.0.0.2", ca=self.servers.authority.file)
        await self.refused("registry_unreachable", misnamed.check())
        await self.refused("registry_tls_failed", self.client(self.servers.plain.port, plain=False).check())
