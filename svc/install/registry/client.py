"""
The client of one registry: manifests, content, referrers.

Everything that is received is verified: by the digest it was asked for, or that of the answer where a tag was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from cryptography import x509

from svc.install.registry.blobs import CHUNK, Blobs, LocalBlob, Progress, Pushed, pulling, pushing
from svc.install.registry.connections import STALL_SECONDS, Connections
from svc.install.registry.credentials import Credentials
from svc.install.registry.errors import ContentMissing, RegistryError
from svc.install.registry.exchanges import PACE, Exchanges
from svc.install.registry.references import Descriptor, Host, digest_of, is_digest, is_repository, is_tag
from svc.install.registry.referrers import INDEX, next_page, parse_index, referrer_in, referrers_tag, write_index
from svc.install.registry.requests import Answer, octets
from svc.pacing.backoff import Backoff

#: Largest manifest, in octets, as registries have it.
MAX_MANIFEST: Final = 4 * 1024 * 1024
#: Pages of one list of referrers.
_MAX_PAGES: Final = 64
_MAX_ERROR: Final = 64 * 1024
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_ACCEPTED: Final = (
    INDEX,
    MANIFEST,
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    A manifest or an index.

    Attributes:
        digest: of its octets.
        media_type: as the registry says.
        data: its octets.
    """

    digest: str
    media_type: str
    data: bytes


class RegistryClient:
    """
    One registry.

    Args:
        reactor: the reactor.
        host: of the registry.
        credentials: None for none.
        plain: by HTTP in place of HTTPS. A certificate is always verified.
        roots: the authorities that are trusted for the registry, in place of those of the system; see
            :func:`svc.install.registry.connections.read_roots`.
        environment: the variables; ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` are used.
        now: gives the time, aware.
        random: gives a number from 0 to 1.
        stall: seconds without an octet until a connection is given up.
        chunk: octets of one request of an upload.
        pace: the pauses between attempts.
    """

    def __init__(
        self,
        reactor: Any,
        host: Host,
        *,
        now: Callable[[], datetime],
        random: Callable[[], float],
        credentials: Credentials | None = None,
        plain: bool = False,
        roots: Sequence[x509.Certificate] = (),
        environment: Mapping[str, str] | None = None,
        stall: float = STALL_SECONDS,
        chunk: int = CHUNK,
        pace: Backoff = PACE,
    ) -> None:
        self.host = host
        self._connections = Connections(reactor, host, roots=roots, environment=environment or {}, stall=stall)
        self._exchanges = Exchanges(
            reactor, host, self._connections, plain=plain, credentials=credentials, now=now, random=random, pace=pace
        )
        self._blobs = Blobs(reactor, self._exchanges, chunk)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def check(self) -> None:
        """
        Find out whether this is a registry that accepts the credentials.

        Raises:
            RegistryError: it is not.
        """
        answer = await self._ask("GET", "", "")
        if answer.code != 200:
            raise RegistryError(
                "registry_answer_invalid", registry=self.host, defect=f"/v2/ answers with the status {answer.code}"
            )

    async def check_push(self, repository: str) -> None:
        """
        Find out whether a repository may be written, by an upload that is begun and cancelled.

        Raises:
            RegistryError: it may not.
        """
        await self._blobs.may_push(_named(repository))

    # -- Manifests ----------------------------------------------------------------------------------------------------

    async def resolve(self, repository: str, reference: str) -> str | None:
        """
        Ask for the digest of a tag, or whether there is a manifest with a digest.

        Args:
            repository: its name.
            reference: a tag or a digest.

        Returns:
            The digest; None where there is no such manifest.

        Raises:
            RegistryError: the registry does not say.
        """
        url = f"{_named(repository)}/manifests/{_named_manifest(reference)}"
        answer = await self._ask("HEAD", url, repository, accept=_ACCEPTED)
        if answer.code == 404:
            return None
        if answer.code != 200:
            self._exchanges.refuse(answer, "pull", repository, reference)
        named = answer.field("docker-content-digest")
        if is_digest(named) and (named == reference or not is_digest(reference)):
            return named
        return (await self.pull_manifest(repository, reference)).digest

    async def pull_manifest(
        self, repository: str, reference: str, *, accept: Sequence[str] = _ACCEPTED, limit: int = MAX_MANIFEST
    ) -> Manifest:
        """
        Fetch a manifest.

        Args:
            repository: its name.
            reference: a tag or a digest.
            accept: the media types that are understood.
            limit: of its size, in octets.

        Returns:
            The manifest; where a digest was asked for, it has that digest.

        Raises:
            ContentMissing: there is none.
            RegistryError: the registry does not give it, or another one.
        """
        url = f"{_named(repository)}/manifests/{_named_manifest(reference)}"
        answer = await self._ask("GET", url, repository, accept=accept, limit=limit)
        if answer.code != 200:
            self._exchanges.refuse(answer, "pull", repository, reference)
        wanted = reference if is_digest(reference) else answer.field("docker-content-digest")
        found = digest_of(answer.data, wanted if is_digest(wanted) else "sha256:")
        if wanted and wanted != found:
            raise self._differs(repository, wanted, f"its digest is {found}")
        return Manifest(found, answer.field("content-type").partition(";")[0].strip(), answer.data)

    async def push_manifest(self, repository: str, reference: str, data: bytes, media_type: str) -> str:
        """
        Store a manifest, unless it is there, and verify that it is.

        What it refers to must be there before. A manifest with a ``subject`` is added to the list of referrers where
        the registry keeps none itself.

        Args:
            repository: its name.
            reference: a tag or the digest.
            data: its octets.
            media_type: of it.

        Returns:
            Its digest.

        Raises:
            RegistryError: the registry does not take it, or has another one afterwards.
        """
        digest = digest_of(data, reference if is_digest(reference) else "sha256:")
        if is_digest(reference) and reference != digest:
            raise self._differs(repository, reference, f"what is to be pushed has the digest {digest}")
        if await self.resolve(repository, reference) == digest:
            return digest
        answer = await self._exchanges.ask(
            "PUT",
            f"{repository}/manifests/{reference}",
            scopes=pushing(repository),
            limit=_MAX_ERROR,
            repository=repository,
            headers={"content-type": media_type},
            body=lambda: octets(data),
        )
        if answer.code not in (201, 202, 204):
            self._exchanges.refuse(answer, "push to", repository, reference)
        found = await self.resolve(repository, reference)
        if found != digest:
            raise RegistryError(
                "registry_push_differs",
                registry=self.host,
                repository=repository,
                reference=reference,
                digest=digest,
                found=found or "nothing",
            )
        if not answer.field("oci-subject"):
            await self._list_referrer(repository, Manifest(digest, media_type, data))
        return digest

    # -- Content ------------------------------------------------------------------------------------------------------

    async def has_blob(self, repository: str, digest: str) -> bool:
        """Ask whether a repository has content."""
        return await self._blobs.has(_named(repository), _named_content(digest))

    async def pull_blob(
        self, repository: str, digest: str, size: int, path: Path, *, progress: Progress | None = None
    ) -> None:
        """
        Download content to a file, which has its name only when it is complete and verified.

        What an earlier run left in ``PATH.part`` is continued; a file ``PATH`` is verified and kept.

        Args:
            repository: its name.
            digest: of the content.
            size: in octets.
            path: of the file.
            progress: gets how many octets there are, never less than before.

        Raises:
            ContentMissing: there is none.
            RegistryError: the registry does not give it, or gives other content, or the file cannot be written.
        """
        await self._blobs.pull(_named(repository), _named_content(digest), size, path, progress)

    async def push_blob(
        self, repository: str, blob: LocalBlob, *, mount_from: str = "", progress: Progress | None = None
    ) -> Pushed:
        """
        Upload content, unless it is there.

        Args:
            repository: its name.
            blob: the content in a file.
            mount_from: another repository of this registry that has the content, or may have it; empty for none.
            progress: gets how many octets the registry has, never less than before.

        Returns:
            What was done.

        Raises:
            RegistryError: the registry does not take it, or the file does not have this content.
        """
        _named_content(blob.digest)
        return await self._blobs.push(_named(repository), blob, mount_from and _named(mount_from), progress)

    # -- Referrers ----------------------------------------------------------------------------------------------------

    async def referrers(self, repository: str, digest: str, artifact_type: str = "") -> list[Descriptor]:
        """
        List the manifests whose subject is another one.

        Args:
            repository: its name.
            digest: of the subject.
            artifact_type: only of this type; empty for all.

        Returns:
            Their descriptors, from the registry's list or from the index with the tag that stands for it (OCI
            Distribution Specification 1.1, referrers tag schema).

        Raises:
            RegistryError: the registry does not answer, or not with a list.
        """
        found: list[Descriptor] = []
        url = f"{_named(repository)}/referrers/{_named_content(digest)}"
        for _ in range(_MAX_PAGES):
            answer = await self._ask("GET", url, repository, accept=(INDEX,), limit=MAX_MANIFEST)
            if answer.code == 404:
                found = await self._listed(repository, digest)
                break
            if answer.code != 200:
                self._exchanges.refuse(answer, "pull", repository, digest)
            found += parse_index(self.host, answer.data)
            following = next_page(answer.field("link"))
            if not following:
                break
            url = urljoin(urljoin(self._exchanges.requests.base, url), following)
        return [each for each in found if artifact_type in ("", each.artifact_type)]

    async def _listed(self, repository: str, digest: str) -> list[Descriptor]:
        try:
            index = await self.pull_manifest(repository, referrers_tag(digest), accept=(INDEX,))
        except ContentMissing:
            return []
        return parse_index(self.host, index.data)

    async def _list_referrer(self, repository: str, manifest: Manifest) -> None:
        """Add a manifest with a subject to the index of the referrers, where the registry has no list of its own."""
        found = referrer_in(manifest.data, manifest.media_type, manifest.digest)
        if found is None:
            return
        subject, referrer = found
        listed = await self._listed(repository, subject)
        if all(each.digest != referrer.digest for each in listed):
            await self.push_manifest(repository, referrers_tag(subject), write_index((*listed, referrer)), INDEX)

    def _differs(self, repository: str, digest: str, defect: str) -> RegistryError:
        return RegistryError(
            "registry_content_differs", registry=self.host, repository=repository, digest=digest, defect=defect
        )

    async def _ask(
        self, method: str, url: str, repository: str, *, accept: Sequence[str] = (), limit: int = _MAX_ERROR
    ) -> Answer:
        return await self._exchanges.ask(
            method,
            url,
            scopes=pulling(repository) if repository else (),
            limit=limit,
            repository=repository or "its API",
            headers={"accept": ", ".join(accept)} if accept else None,
        )


def _named(repository: str) -> str:
    """Return the name of a repository, as part of a URL."""
    if not is_repository(repository):
        raise RegistryError("reference_invalid", text=repository, defect="it is not the name of a repository")
    return repository


def _named_manifest(reference: str) -> str:
    if not is_digest(reference) and not is_tag(reference):
        raise RegistryError("reference_invalid", text=reference, defect="it is neither a tag nor a digest")
    return reference


def _named_content(digest: str) -> str:
    if not is_digest(digest):
        raise RegistryError("reference_invalid", text=digest, defect="it is not a digest")
    return digest
