"""The client of registries where networks and registries do what they do: cuts, limits, redirects, wrong content."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from twisted.internet.defer import Deferred

from svc.install.registry.blobs import LocalBlob
from svc.install.registry.client import MANIFEST, RegistryClient
from svc.install.registry.credentials import Credentials
from svc.install.registry.errors import ContentMissing
from svc.install.registry.exchanges import ATTEMPTS
from svc.install.registry.referrers import INDEX
from tests.integration.registry_rig import CONFIG, Authority, RegistryCase, manifest, octets
from tests.peers.folders import short_folder
from tests.peers.registry import (
    IDENTITY_TOKEN,
    PASSWORD,
    USERNAME,
    ForwardProxy,
    Interference,
    Passing,
    RunningRegistry,
    TokenServer,
    sha256,
)
from tests.peers.waiting import Shared

SIZE = 100_000
CONTENT = octets(SIZE, 7)
DIGEST = sha256(CONTENT)
KNOWN = Credentials(USERNAME, PASSWORD, source="test")


class _Servers:
    """A registry with neither TLS nor passwords, one that asks for tokens, and one with TLS."""

    def __init__(self, stack: ExitStack) -> None:
        self.authority = Authority(short_folder(stack))
        self.plain = RunningRegistry(stack)
        self.tokens = TokenServer(stack, self.authority.server)
        self.guarded = RunningRegistry(stack, token=self.tokens.config)
        self.secured = RunningRegistry(stack, certificate=self.authority.server)


SERVERS = Shared(_Servers)


def once(action: Callable[[Passing], bool], method: str, part: str, times: int = 1) -> Callable[[Passing], bool]:
    """Do something to the first requests with a method whose path has a part."""
    left = [times]

    def meddle(request: Passing) -> bool:
        if left[0] and request.command == method and part in request.path:
            left[0] -= 1
            return action(request)
        return False

    return meddle


def answering(
    status: int, fields: dict[str, str] | None = None, data: bytes = b"", method: str = ""
) -> Callable[[Passing], bool]:
    """Answer all requests, or those with a method, in the same way."""
    return lambda request: method in ("", request.command) and request.answer(status, fields or {}, data)


def lose_answer(request: Passing) -> bool:
    """Let a request reach the registry, and its answer be lost."""
    request.answer_is_lost = True
    return False


class InterruptedCase(RegistryCase):
    """A client whose requests pass through what interferes."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Store the content."""
        super().setUp()
        self.servers = SERVERS.get()
        self.between = Interference(self.stack, self.servers.plain.port)
        direct = self.client(self.servers.plain.port)
        await direct.push_blob("acme/svc", self.blob(CONTENT))
        self.passed = self.client(self.between.port, stall=1.0, chunk=30_000)
        self.path = self.folder / "pulled"
        self.progress: list[int] = []

    async def pull(self, client: RegistryClient | None = None) -> None:
        """Pull the content."""
        await (client or self.passed).pull_blob("acme/svc", DIGEST, SIZE, self.path, progress=self.progress.append)

    def ranges(self) -> list[str]:
        """The ranges that were asked for."""
        return [fields.get("range", "") for fields in self.between.asked("GET", "/blobs/sha256")]

    def assert_pulled(self) -> None:
        """The file has the content, nothing else is left, and progress has never gone back."""
        self.assertEqual(CONTENT, self.path.read_bytes())
        self.assertFalse(self.path.with_name("pulled.part").exists())
        self.assertEqual(sorted(set(self.progress)), self.progress)


class DownloadTests(InterruptedCase):
    """Downloads."""

    async def test_cut_at_every_tenth(self) -> None:
        """A download that is cut anywhere goes on from there."""
        for tenth in range(10):
            self.between.requests.clear()
            self.progress.clear()
            self.path.unlink(missing_ok=True)
            begin = SIZE * tenth // 10
            self.between.cut = [begin]
            await self.pull()
            self.assert_pulled()
            self.assertEqual(["", f"bytes={begin}-" if begin else ""], self.ranges())

    async def test_cut_again_and_again(self) -> None:
        """Attempts that bring something do not count; those that bring nothing end after a few; a later run goes on."""
        self.between.cut = [SIZE // 10] * 9
        await self.pull()
        self.assert_pulled()
        self.assertEqual(10, len(self.ranges()))
        self.path.unlink()
        self.between.requests.clear()
        self.between.cut = [SIZE // 2, *[0] * ATTEMPTS]
        await self.refused("registry_cut_off", self.pull())
        self.assertEqual(1 + ATTEMPTS - 1, len(self.ranges()))
        self.between.cut.clear()
        self.progress.clear()
        await self.pull()
        self.assert_pulled()
        self.assertEqual(f"bytes={SIZE // 2}-", self.ranges()[-1])

    async def test_parts_of_earlier_runs(self) -> None:
        """What is on disk is continued where it is right, and replaced where it is not."""
        part = self.path.with_name("pulled.part")
        for data, asked in (
            (CONTENT[:-1], [f"bytes={SIZE - 1}-"]),
            (CONTENT, []),
            (b"x" * SIZE, [""]),
            (CONTENT + b"x", [""]),
            (b"x" * 10, ["bytes=10-", ""]),
        ):
            self.path.unlink(missing_ok=True)
            part.write_bytes(data)
            self.between.requests.clear()
            self.progress.clear()
            await self.pull()
            self.assert_pulled()
            self.assertEqual(asked, self.ranges())
        self.between.requests.clear()
        await self.pull()
        self.assertEqual([], self.ranges())

    async def test_ranges_not_understood(self) -> None:
        """A registry that ignores a range, refuses it or answers another one gives the whole."""
        total = str(SIZE)
        for action in (
            lambda request: request.answer(200, {}, CONTENT),
            lambda request: request.answer(416, {"Content-Length": total}, b"x") and request.end(),
            lambda request: request.answer(206, {"Content-Range": f"bytes 0-{SIZE - 1}/{SIZE}"}, CONTENT),
        ):
            self.path.unlink(missing_ok=True)
            self.path.with_name("pulled.part").write_bytes(CONTENT[:500])
            self.progress.clear()
            self.between.meddle = once(action, "GET", "/blobs/")
            await self.pull()
            self.assert_pulled()

    async def test_wrong_content(self) -> None:
        """Content with another digest or size is refused, and nothing of it stays."""
        wrong = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
        for data in (wrong, CONTENT + b"x", CONTENT[:-1]):
            self.between.meddle = answering(200, data=data, method="GET")
            error = await self.refused("registry_content_differs", self.pull())
            self.assertIn(DIGEST, str(error))
            self.assertFalse(self.path.exists())
        data = manifest()
        self.between.meddle = lambda request: request.answer(200, {"Content-Type": MANIFEST}, data)
        await self.refused("registry_content_differs", self.passed.pull_manifest("acme/svc", DIGEST))
        self.between.meddle = lambda request: request.answer(200, {"Docker-Content-Digest": DIGEST}, data)
        await self.refused("registry_content_differs", self.passed.pull_manifest("acme/svc", "1.0"))
        self.between.meddle = lambda request: request.answer(200, {}, b"x" * 101)
        large = self.passed.pull_manifest("acme/svc", "1.0", limit=100)
        await self.refused("registry_content_too_large", large)

    async def test_missing(self) -> None:
        """What is not there is said so, and nothing stays of it."""
        other = sha256(b"other")
        with self.assertRaises(ContentMissing):
            await self.passed.pull_blob("acme/svc", other, 5, self.path)
        with self.assertRaises(ContentMissing):
            await self.passed.pull_manifest("acme/svc", "none")
        self.assertFalse(self.path.exists())

    async def test_silence(self) -> None:
        """A connection on which nothing comes is given up, and the download goes on."""

        def stop(request: Passing) -> bool:
            request.send_response(200)
            request.send_header("Content-Length", str(SIZE))
            request.end_headers()
            request.wfile.write(CONTENT[:1000])
            request.wfile.flush()
            time.sleep(3)
            return request.end()

        self.between.meddle = once(stop, "GET", "/blobs/")
        await self.pull()
        self.assert_pulled()
        self.assertEqual(["", "bytes=1000-"], self.ranges())
        self.between.meddle = lambda request: time.sleep(3) or request.end()
        slow = self.client(self.between.port, stall=0.05)
        await self.refused("registry_silent", slow.check())

    async def test_limits(self) -> None:
        """A registry that limits requests is asked again when it says; one that fails, a little later."""

        def later() -> str:
            return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)

        for status, after in ((429, lambda: "1"), (429, later), (503, lambda: ""), (500, lambda: "soon")):
            self.path.unlink(missing_ok=True)
            self.progress.clear()

            def limit(request: Passing, status: int = status, after: Callable[[], str] = after) -> bool:
                return request.answer(status, {"Retry-After": after()})

            begun = time.monotonic()
            self.between.meddle = once(limit, "GET", "/blobs/")
            await self.pull()
            self.assert_pulled()
            self.assertEqual(status == 429, time.monotonic() - begun > 0.9)
        self.between.meddle = lambda request: request.answer(429, {"Retry-After": "3600"})
        error = await self.refused("registry_busy", self.passed.check())
        self.assertIn("3600 s", str(error))
        self.between.requests.clear()
        self.between.meddle = lambda request: request.answer(502, {})
        await self.refused("registry_failing", self.passed.resolve("acme/svc", "1.0"))
        self.assertEqual(ATTEMPTS, len(self.between.requests))

    async def test_one_writer(self) -> None:
        """Two processes do not write one part; a folder that is missing is named."""
        self.between.meddle = lambda request: bool(time.sleep(0.3))
        first = self.passed.pull_blob("acme/svc", DIGEST, SIZE, self.path)
        running = Deferred.fromCoroutine(first)
        await self.refused("blob_file_unusable", self.pull())
        await running
        missing = self.passed.pull_blob("acme/svc", DIGEST, SIZE, self.folder / "no" / "file")
        self.assertIn("no such file", str(await self.refused("blob_file_unusable", missing)))

    async def test_full_disk(self) -> None:
        """A full disk ends a download, which goes on when there is room; a link in place of a part is refused."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, hard))
        try:
            await self.refused("blob_file_unusable", self.pull())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        self.progress.clear()
        await self.pull()
        self.assert_pulled()
        self.assertEqual(["", f"bytes={SIZE // 2}-"], self.ranges())
        self.path.unlink()
        self.path.with_name("pulled.part").symlink_to(self.folder / "other")
        await self.refused("blob_file_unusable", self.pull())
        self.assertFalse((self.folder / "other").exists())

    async def test_names(self) -> None:
        """Names that would lead to another path of the registry are refused before any request."""
        for working in (
            self.passed.pull_blob("acme/svc", "sha256:../../x", 1, self.path),
            self.passed.pull_blob("../acme", DIGEST, 1, self.path),
            self.passed.pull_manifest("acme/svc", "../x"),
            self.passed.resolve("acme/svc?x", "1"),
            self.passed.push_blob("acme/svc", self.blob(CONTENT), mount_from="a b"),
            self.passed.referrers("acme/svc", "latest"),
            self.passed.check_push("Acme"),
        ):
            await self.refused("reference_invalid", working)
        self.assertEqual([], self.between.requests)


class UploadTests(InterruptedCase):
    """Uploads."""

    def other(self, seed: int) -> LocalBlob:
        """Content that is not there."""
        return self.blob(octets(SIZE, seed))

    async def check(self, blob: LocalBlob) -> None:
        """The registry has it."""
        self.path.unlink(missing_ok=True)
        await self.client(self.servers.plain.port).pull_blob("acme/svc", blob.digest, blob.size, self.path)

    async def test_lost_answers(self) -> None:
        """An upload goes on from what the registry says that it has."""
        for number, (method, part, action) in enumerate(
            (
                ("PATCH", "", lose_answer),
                ("PATCH", "", lambda request: request.end()),
                ("POST", "", lose_answer),
                ("PUT", "", lose_answer),
                ("HEAD", "", lambda request: request.answer(503, {})),
                ("PATCH", "", lambda request: request.answer(500, {})),
                ("PATCH", "", lambda request: request.answer(429, {"Retry-After": "0"})),
            )
        ):
            blob = self.other(100 + number)
            self.between.meddle = once(action, method, part)
            self.progress.clear()
            self.assertEqual("sent", await self.passed.push_blob("acme/svc", blob, progress=self.progress.append))
            self.assertEqual((sorted(set(self.progress)), SIZE), (self.progress, self.progress[-1]))
            await self.check(blob)
            self.assertTrue(self.between.asked("PATCH", ""))

    async def test_forgotten_upload(self) -> None:
        """An upload that the registry does not know any more begins anew, and one without chunks is sent in one."""
        for number, action in enumerate(
            (
                lambda request: request.answer(404, {}, b'{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}'),
                lambda request: request.answer(416, {}),
                lambda request: request.answer(400, {}, b'{"errors":[{"code":"BLOB_UPLOAD_INVALID"}]}'),
            )
        ):
            blob = self.other(200 + number)
            self.between.meddle = once(action, "PATCH", "")
            self.assertEqual("sent", await self.passed.push_blob("acme/svc", blob))
            await self.check(blob)

    async def test_changed_file(self) -> None:
        """A file that has not the content that it should have is named, and the registry does not keep it."""
        blob = self.other(300)
        blob.path.write_bytes(b"x" * SIZE)
        error = await self.refused("blob_file_changed", self.passed.push_blob("acme/svc", blob))
        self.assertIn(str(blob.path), str(error))
        blob.path.write_bytes(b"x" * 10)
        await self.refused("blob_file_changed", self.passed.push_blob("acme/svc", blob))
        self.assertFalse(await self.passed.has_blob("acme/svc", blob.digest))

    async def test_other_manifest_afterwards(self) -> None:
        """A manifest that is another one after it was pushed is refused; one that is there is not sent again."""
        await self.passed.push_blob("acme/svc", self.blob(CONFIG))
        data = manifest()
        await self.passed.push_manifest("acme/svc", "2.0", data, MANIFEST)
        self.between.requests.clear()
        await self.passed.push_manifest("acme/svc", "2.0", data, MANIFEST)
        self.assertEqual({"HEAD"}, {method for method, _path, _fields in self.between.requests})
        self.between.meddle = lambda request: request.command == "PUT" and request.answer(201, {})
        changed = manifest(annotations={"a": "b"})
        await self.refused("registry_push_differs", self.passed.push_manifest("acme/svc", "2.0", changed, MANIFEST))
        self.between.meddle = lambda request: (
            request.command == "PUT" and request.answer(403, {}, b'{"errors":[{"code":"DENIED","message":"secret"}]}')
        )
        error = await self.refused("registry_forbidden", self.passed.push_manifest("a/b", "1", changed, MANIFEST))
        self.assertNotIn("secret", str(error))

    async def test_referrers(self) -> None:
        """Without a list in the registry, referrers are in an index with the tag that stands for it."""
        await self.passed.push_blob("acme/svc", self.blob(CONFIG))
        subject = manifest(annotations={"subject": "1"})
        await self.passed.push_manifest("acme/svc", "3.0", subject, MANIFEST)
        refers = {"mediaType": MANIFEST, "digest": sha256(subject), "size": len(subject)}
        self.assertEqual([], await self.passed.referrers("acme/svc", sha256(subject)))
        for kind in ("sbom", "signature", "sbom"):
            data = manifest(subject=refers, artifactType=f"application/{kind}", annotations={"kind": kind})
            await self.passed.push_manifest("acme/svc", sha256(data), data, MANIFEST)
        found = await self.passed.referrers("acme/svc", sha256(subject))
        self.assertEqual(["application/sbom", "application/signature"], [each.artifact_type for each in found])
        only = await self.passed.referrers("acme/svc", sha256(subject), "application/sbom")
        self.assertEqual([{"kind": "sbom"}], [each.annotations for each in only])

        entries = [{"mediaType": MANIFEST, "digest": sha256(b"%d" % each), "size": each} for each in range(2)]

        def listed(request: Passing) -> bool:
            page = int("page" in request.path)
            data = json.dumps({"mediaType": INDEX, "manifests": [entries[page]]}).encode()
            return request.answer(200, {} if page else {"Link": f'<{request.path}?page=2>; rel="next"'}, data)

        self.between.meddle = listed
        found = await self.passed.referrers("acme/svc", sha256(subject))
        self.assertEqual([0, 1], [each.size for each in found])
        for wrong in (b"{}", b"x", b'{"manifests":[1]}', b'{"manifests":[{"mediaType":"a","digest":"b","size":1}]}'):
            self.between.meddle = answering(200, data=wrong)
            await self.refused("registry_answer_invalid", self.passed.referrers("acme/svc", sha256(subject)))


class RedirectTests(InterruptedCase):
    """Answers that name another address."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Start another server, to which the registry redirects."""
        await super().setUp()
        self.elsewhere = Interference(self.stack, self.servers.plain.port)
        target = f"http://127.0.0.1:{self.elsewhere.port}/v2/acme/svc/blobs/{DIGEST}?signature=secret"
        self.between.meddle = lambda request: (
            request.command == "GET" and "/blobs/" in request.path and request.answer(307, {"Location": target})
        )
        registry = Interference(self.stack, self.servers.guarded.port)
        registry.meddle = self.between.meddle
        self.guarded = self.client(registry.port, credentials=KNOWN)
        self.registry = registry

    async def test_without_credentials(self) -> None:
        """Content is fetched where the registry says, without the token, and with the range after a cut."""
        self.registry.meddle = lambda request: "authorization" in request.fields and self.between.meddle(request)
        self.elsewhere.cut = [1000]
        await self.pull(self.guarded)
        self.assert_pulled()
        self.assertTrue(any("authorization" in fields for fields in self.registry.asked("GET", "/blobs/")))
        asked = self.elsewhere.asked("GET", "/blobs/")
        self.assertEqual([None, "bytes=1000-"], [fields.get("range") for fields in asked])
        self.assertFalse(any("authorization" in fields for fields in asked))

    async def test_trust_elsewhere(self) -> None:
        """The authority of the registry is trusted for what it redirects to as well, such as its own storage."""
        server, ca = self.servers.authority.server, self.servers.authority.file
        registry = Interference(self.stack, self.servers.plain.port, certificate=server)
        storage = Interference(self.stack, self.servers.plain.port, certificate=server)
        target = f"https://localhost:{storage.port}/v2/acme/svc/blobs/{DIGEST}"
        registry.meddle = answering(307, {"Location": target}, method="GET")
        await self.pull(self.client(registry.port, ca=ca))
        self.assert_pulled()
        self.assertEqual(1, len(storage.requests))

    async def test_ended_signature(self) -> None:
        """Where the other address does not take the request any more, the registry is asked for a new one."""
        self.elsewhere.meddle = once(lambda request: request.answer(403, {}), "GET", "/blobs/")
        await self.pull()
        self.assert_pulled()
        self.elsewhere.meddle = lambda request: request.answer(403, {})
        self.path.unlink()
        error = await self.refused("registry_cut_off", self.pull())
        self.assertNotIn("secret", f"{error}{error.evidence}")

    async def test_refused(self) -> None:
        """Endless redirects, other schemes and addresses with credentials are not followed."""
        own = f"http://127.0.0.1:{self.between.port}/v2/acme/svc/blobs/{DIGEST}"
        for location in (own, "ftp://127.0.0.1/", "http://user:secret@127.0.0.1/", "http:///"):
            self.between.meddle = answering(307, {"Location": location})
            error = await self.refused("registry_redirect_refused", self.pull())
            self.assertNotIn("secret", f"{error}{error.evidence}")
        secured = Interference(self.stack, self.servers.plain.port, certificate=self.servers.authority.server)
        secured.meddle = lambda request: request.answer(307, {"Location": own})
        client = self.client(secured.port, ca=self.servers.authority.file)
        self.between.requests.clear()
        await self.refused("registry_redirect_refused", self.pull(client))
        self.assertEqual([], self.between.requests)


class TokenTests(InterruptedCase):
    """A registry that asks for tokens."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Stand between client and registry."""
        await super().setUp()
        self.between = Interference(self.stack, self.servers.guarded.port)
        self.tokens = self.servers.tokens
        self.guarded = self.client(self.between.port, credentials=KNOWN, chunk=30_000)
        self.tokens.asked.clear()

    async def test_tokens(self) -> None:
        """One token for each scope serves many requests; a mount asks for both repositories."""
        blob = self.blob(octets(SIZE, 400))
        await self.guarded.check()
        await self.guarded.push_blob("acme/a", blob)
        self.assertEqual([[], ["repository:acme/a:pull"], ["repository:acme/a:pull,push"]], self.tokens.asked)
        self.assertEqual("mounted", await self.guarded.push_blob("acme/b", blob, mount_from="acme/a"))
        self.assertEqual({"repository:acme/b:pull,push", "repository:acme/a:pull"}, set(self.tokens.asked[-1]))
        refresh = Credentials("", "", identity_token=IDENTITY_TOKEN, source="test")
        self.assertTrue(await self.client(self.between.port, credentials=refresh).has_blob("acme/a", blob.digest))
        static = self.between.asked("HEAD", "/blobs/")[-1]["authorization"].removeprefix("Bearer ")
        given = Credentials("", "", registry_token=static, source="test")
        self.assertTrue(await self.client(self.between.port, credentials=given).has_blob("acme/a", blob.digest))

    async def test_refused(self) -> None:
        """Nobody gets a token without the right password, and the error has none."""
        for credentials in (None, Credentials(USERNAME, "secret", source="test"), Credentials("", "", "secret")):
            client = self.client(self.between.port, credentials=credentials)
            error = await self.refused("registry_unauthorized", client.resolve("acme/a", "1"))
            self.assertNotIn("secret", f"{error}{error.hint}{error.evidence}")

    async def test_ended_in_the_middle(self) -> None:
        """A token that ends in the middle of a transfer is replaced once, and the transfer goes on."""

        def end(request: Passing) -> bool:
            del request.headers["Authorization"]
            return False

        blob = self.blob(octets(SIZE, 500))
        left = [0]

        def third_chunk(request: Passing) -> bool:
            left[0] += request.command == "PATCH"
            return left[0] == 3 and request.command == "PATCH" and end(request)

        self.between.meddle = third_chunk
        self.assertEqual("sent", await self.guarded.push_blob("acme/c", blob))
        self.assertEqual(2, self.tokens.asked.count(["repository:acme/c:pull,push"]))
        self.between.cut = [SIZE // 2]
        seen = []

        def after_cut(request: Passing) -> bool:
            seen.append(request.fields.get("range"))
            return len(seen) == 2 and end(request)

        self.between.meddle = after_cut
        await self.guarded.pull_blob("acme/c", blob.digest, blob.size, self.path)
        self.assertEqual(octets(SIZE, 500), self.path.read_bytes())
        self.assertEqual([None, f"bytes={SIZE // 2}-", f"bytes={SIZE // 2}-"], seen)
        self.between.meddle = end
        await self.refused("registry_unauthorized", self.guarded.has_blob("acme/c", blob.digest))

    async def test_address_of_tokens(self) -> None:
        """The password is sent to no address in the clear where the registry is not, and no answer is trusted."""
        challenge = {"WWW-Authenticate": f'Bearer realm="{self.tokens.config["realm"]}",service="registry"'}
        secured = Interference(self.stack, self.servers.plain.port, certificate=self.servers.authority.server)
        secured.meddle = lambda request: request.answer(401, challenge)
        client = self.client(secured.port, ca=self.servers.authority.file, credentials=KNOWN)
        await self.refused("registry_redirect_refused", client.check())
        self.assertEqual([], self.tokens.asked)
        realm = f"http://127.0.0.1:{self.between.port}/token"
        ask = answering(401, {"WWW-Authenticate": f'Bearer realm="{realm}"'})
        for data in (b"{}", b"x", b'{"token":"a\\r\\nb: c"}', b'{"token":1}'):
            give = answering(200, data=data)

            def both(request: Passing, give: Callable[[Passing], bool] = give) -> bool:
                return (give if "/token" in request.path else ask)(request)

            self.between.meddle = both
            await self.refused("registry_answer_invalid", self.guarded.check())


class ProxyTests(RegistryCase):
    """A registry that only a proxy can reach."""

    def setUp(self) -> None:
        """Start the proxy."""
        super().setUp()
        self.servers = SERVERS.get()
        self.proxy = ForwardProxy(self.stack)

    def through(self, port: int, ca: Path | None = None, **environment: str) -> RegistryClient:
        """Make a client of the registry behind the proxy."""
        return self.client(port, "registry.test", ca=ca, environment=environment)

    async def test_tunnel(self) -> None:
        """With TLS the proxy connects, and the registry's certificate is verified through it."""
        port, ca = self.servers.secured.port, self.servers.authority.file
        client = self.through(port, ca, HTTPS_PROXY=self.proxy.url)
        blob = self.blob(octets(SIZE, 600))
        self.assertEqual("sent", await client.push_blob("acme/svc", blob))
        await client.pull_blob("acme/svc", blob.digest, blob.size, self.folder / "pulled")
        self.assertEqual({f"CONNECT registry.test:{port} HTTP/1.1"}, set(self.proxy.asked))
        untrusted = self.client(port, "registry.test", plain=False, environment={"https_proxy": self.proxy.url})
        await self.refused("registry_certificate_invalid", untrusted.check())

    async def test_without_tunnel(self) -> None:
        """Without TLS the proxy gets the request."""
        port = self.servers.plain.port
        await self.through(port, http_proxy=self.proxy.url).check()
        self.assertEqual([f"GET http://registry.test:{port}/v2/ HTTP/1.1"], self.proxy.asked)

    async def test_refused(self) -> None:
        """What the proxy answers is said, without the password; a proxy that is not there is named."""
        port, ca = self.servers.secured.port, self.servers.authority.file
        wrong = f"http://user:secret@127.0.0.1:{self.proxy.port}"
        error = await self.refused("registry_proxy_refused", self.through(port, ca, HTTPS_PROXY=wrong).check())
        self.assertIn("407", str(error))
        self.assertNotIn("secret", f"{error}{error.hint}{error.evidence!r}")
        gone = self.through(port, ca, HTTPS_PROXY="http://127.0.0.1:1").check()
        self.assertIn("127.0.0.1:1", str(await self.refused("registry_unreachable", gone)))
        self.proxy.asked.clear()
        direct = self.through(port, ca, HTTPS_PROXY=self.proxy.url, NO_PROXY="registry.test").check()
        await self.refused("registry_unreachable", direct)
        self.assertEqual([], self.proxy.asked)
