"""
A release in a registry: found, verified, downloaded, and pushed to another one.

Nothing of a release is used before its signature and the digests that follow from it are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, Final, NamedTuple

from twisted.internet.defer import Deferred, DeferredSemaphore, FirstError, gatherResults

from svc.install.registry.blobs import LocalBlob
from svc.install.registry.client import RegistryClient
from svc.install.registry.references import Registry
from svc.install.release.document import Content, Release
from svc.install.release.errors import ReleaseRefused
from svc.install.release.manifests import (
    ARTIFACT_REPOSITORY,
    EMPTY_CONFIG,
    MANIFEST,
    Blob,
    Contents,
    content,
    read_artifact,
    read_contents,
    release_artifact,
)
from svc.install.release.package import VerifiedPackage
from svc.install.release.signature import SignedRelease, verify_release
from svc.license.vendors import VendorKey

#: Transfers at the same time.
AT_ONCE: Final = 4
LATEST: Final = "latest"
#: Gets the octets that have been added.
Added = Callable[[int], object]


class Found(NamedTuple):
    """A release that was found; ``digest`` is that of its artifact."""

    signed: SignedRelease
    digest: str


class Remote:
    """
    The releases of a registry.

    Args:
        registry: with the prefix of its repositories.
        client: of its host.
        folder: where what is downloaded is kept, with what an earlier run has left.
    """

    def __init__(self, registry: Registry, client: RegistryClient, folder: Path) -> None:
        self._registry = registry
        self._client = client
        self._folder = folder

    async def find(self, version: str, keys: Sequence[VendorKey]) -> Found:
        """
        Find a release, and verify its signature.

        Args:
            version: of the release, or ``latest``.
            keys: those that are accepted.

        Raises:
            ReleaseRefused: it is not signed by one of them, or is another version.
            RegistryError: the registry does not give it.
        """
        repository = self._registry.repository(ARTIFACT_REPOSITORY)
        artifact = await self._client.pull_manifest(repository, version)
        document, signature = [await self._small(ARTIFACT_REPOSITORY, each) for each in read_artifact(artifact.data)]
        signed = verify_release(document, signature, keys)
        if version not in (LATEST, signed.release.version):
            raise ReleaseRefused("release_version_other", wanted=version, found=signed.release.version)
        return Found(signed, artifact.digest)

    async def contents(self, release: Release, platforms: Sequence[str]) -> Contents:
        """
        Read what a release refers to.

        Args:
            platforms: by :meth:`~svc.install.release.document.Release.selected`.

        Raises:
            ReleaseRefused: it is not as it should be.
            RegistryError: the registry does not give it.
        """
        reading = read_contents(release, platforms)
        try:
            wanted = next(reading)
            while True:
                if wanted.media_type == MANIFEST:
                    name = self._registry.repository(wanted.repository)
                    octets = (await self._client.pull_manifest(name, wanted.content.digest)).data
                else:
                    octets = await self._small(wanted.repository, wanted.content)
                wanted = reading.send(octets)
        except StopIteration as end:
            found: Contents = end.value
            return found

    async def chart(self, contents: Contents) -> bytes:
        """Read the packaged chart of a release."""
        blob = contents.chart.blobs[-1]
        return await self._small(blob.repository, blob.content)

    async def download(self, signed: SignedRelease, contents: Contents, added: Added) -> None:
        """
        Download all that a package of a release needs; :meth:`opened` gives it.

        Args:
            added: gets octets; what is there from an earlier run counts too.

        Raises:
            RegistryError: the registry does not give it.
        """
        files = [Blob(ARTIFACT_REPOSITORY, "", each, path) for path, each in signed.release.files.items()]
        wanted = {each.content.digest: each for each in (*contents.blobs.values(), *files)}
        await _all(partial(self._download, each, added) for each in wanted.values())

    def opened(self, wanted: Content) -> BinaryIO:
        """Open what was downloaded."""
        return self._path(wanted).open("rb")

    async def _download(self, blob: Blob, added: Added) -> None:
        path = self._path(blob.content)
        path.parent.mkdir(parents=True, exist_ok=True)
        name, count = self._registry.repository(blob.repository), _counted(added)
        await self._client.pull_blob(name, blob.content.digest, blob.content.size, path, progress=count)
        count(blob.content.size)

    async def _small(self, repository: str, wanted: Content) -> bytes:
        """Read content that is used at once."""
        await self._download(Blob(repository, "", wanted, ""), lambda _octets: None)
        with self.opened(wanted) as file:
            return file.read()

    def _path(self, wanted: Content) -> Path:
        return self._folder / wanted.entry


async def push_package(
    registry: Registry, client: RegistryClient, package: VerifiedPackage, added: Added, *, latest: bool | None = None
) -> None:
    """
    Push what a package has to a registry, and leave out what is there already.

    Args:
        added: gets the octets of content that the registry has.
        latest: None for images and chart alone, as a mirror has them; else the release itself too, by its version, and
            by ``latest`` where true. It comes last: where it is, all is.

    Raises:
        RegistryError: the registry does not take it.
    """
    release, entries = package.signed.release, package.file.entries

    async def push(repository: str, entry: str, wanted: Content) -> None:
        local = LocalBlob(package.file.path, wanted.digest, wanted.size, entries[entry].offset)
        count = _counted(added)
        await client.push_blob(registry.repository(repository), local, progress=count)
        count(wanted.size)

    contents = package.contents
    blobs = {(each.repository, each.content) for one in contents.manifests for each in one.blobs}
    await _all(partial(push, repository, each.entry, each) for repository, each in sorted(blobs))
    for one in contents.manifests:
        name = registry.repository(one.blob.repository)
        await client.push_manifest(name, one.blob.content.digest, one.octets, one.blob.media_type)
    for each in contents.images:
        blob = each.index.blob
        await client.push_manifest(
            registry.repository(blob.repository), each.image.tag, each.index.octets, blob.media_type
        )
    chart = contents.chart
    await client.push_manifest(
        registry.repository(chart.blob.repository), release.chart.version, chart.octets, chart.blob.media_type
    )
    if latest is None:
        return
    artifact, layers = release_artifact(package.signed)
    await _all(partial(push, ARTIFACT_REPOSITORY, path, each) for path, each in layers.items())
    name, empty = registry.repository(ARTIFACT_REPOSITORY), content(EMPTY_CONFIG)
    with NamedTemporaryFile() as file:
        file.write(EMPTY_CONFIG)
        file.flush()
        await client.push_blob(name, LocalBlob(Path(file.name), empty.digest, empty.size))
    for tag in (release.version, *((LATEST,) if latest else ())):
        await client.push_manifest(name, tag, artifact, MANIFEST)


def push_size(package: VerifiedPackage) -> int:
    """Return the octets of content that a push of images and chart counts."""
    blobs = {(each.repository, each.content) for one in package.contents.manifests for each in one.blobs}
    return sum(each.size for _repository, each in blobs)


def download_size(signed: SignedRelease, contents: Contents) -> int:
    """Return the octets that a download counts."""
    return sum({each.digest: each.size for each in _wanted(signed, contents)}.values())


def _wanted(signed: SignedRelease, contents: Contents) -> list[Content]:
    return [*(each.content for each in contents.blobs.values()), *signed.release.files.values()]


def _counted(added: Added) -> Callable[[int], None]:
    """Turn the octets that there are into those that were added."""
    seen = 0

    def count(now: int) -> None:
        nonlocal seen
        added(now - seen)
        seen = now

    return count


async def _all(works: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run works, some at a time; the first error ends all of them."""
    places = DeferredSemaphore(AT_ONCE)
    running = [places.run(lambda work: Deferred.fromCoroutine(work()), each) for each in works]
    try:
        await gatherResults(running, consumeErrors=True)
    except FirstError as error:
        for each in running:
            each.cancel()
        error.subFailure.raiseException()
