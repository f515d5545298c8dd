"""
Content of a registry to and from files, resumed where it was interrupted.

Owns the state of an upload. What is received is hashed as it comes, and has its name only when it has its digest.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NoReturn
from urllib.parse import quote, urljoin

from twisted.internet.threads import deferToThreadPool
from twisted.web.client import FileBodyProducer
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer

from svc.install.registry.errors import RegistryError, RegistryInterrupted
from svc.install.registry.exchanges import Exchanges
from svc.install.registry.parts import PartialFile
from svc.install.registry.requests import Answer, error_code, field_of
from svc.install.registry.resuming import begin_of_download, continue_download, received

#: Octets of one request of an upload; what is not larger is sent in one.
CHUNK: Final = 16 * 1024 * 1024
_MAX_BODY: Final = 64 * 1024

#: Gets how many octets have been transferred; never less than before.
Progress = Callable[[int], None]
#: What a push did: nothing, since the content was there; had the registry take it from another repository; sent it.
Pushed = Literal["present", "mounted", "sent"]


@dataclass(frozen=True, slots=True)
class LocalBlob:
    """
    Content in a file.

    Attributes:
        path: of the file, which may be an archive.
        digest: of the content.
        size: in octets.
        offset: where it begins in the file.
    """

    path: Path
    digest: str
    size: int
    offset: int = 0


class Blobs:
    """
    The content of the repositories of one registry.

    Args:
        reactor: the reactor; files are hashed in its threads.
        exchanges: requests to the registry.
        chunk: octets of one request of an upload.
    """

    def __init__(self, reactor: Any, exchanges: Exchanges, chunk: int = CHUNK) -> None:
        self._reactor, self._exchanges, self._chunk = reactor, exchanges, chunk

    async def has(self, repository: str, digest: str) -> bool:
        """Ask whether a repository has content."""
        answer = await self._exchanges.ask(
            "HEAD", f"{repository}/blobs/{digest}", scopes=pulling(repository), limit=0, repository=repository
        )
        if answer.code not in (200, 404):
            self._exchanges.refuse(answer, "pull", repository, digest)
        return answer.code == 200

    # -- Download -----------------------------------------------------------------------------------------------------

    async def pull(self, repository: str, digest: str, size: int, path: Path, progress: Progress | None) -> None:
        """Download content; see :meth:`svc.install.registry.client.RegistryClient.pull_blob`."""
        host = self._exchanges.host
        with _file_errors(host, path), PartialFile(path, digest, host) as part:
            await self._in_thread(part.read)
            if part.length > size:
                part.restart()
            report = _Monotone(progress)
            report(part.length)
            retries = self._exchanges.retries()
            resumed = part.length > 0
            while True:
                try:
                    if part.length < size or not size:
                        resumed = await self._receive(part, repository, digest, size, report) or resumed
                    if part.found == digest:
                        break
                    if not resumed:
                        part.remove()
                        raise self._differs(repository, digest, f"its digest is {part.found}")
                    # What was there before may be what is damaged.
                    part.restart()
                    resumed = False
                except RegistryInterrupted as error:
                    resumed = resumed or part.length > 0
                    if report.grew():
                        retries.moved()
                    await retries.pause(error)
            await self._in_thread(part.finish)

    async def _receive(self, part: PartialFile, repository: str, digest: str, size: int, report: _Monotone) -> bool:
        """Receive what is missing; gives whether the part that was there before was kept."""
        begin = begin_of_download(part.length, size)
        response = await self._exchanges.send(
            "GET",
            f"{repository}/blobs/{digest}",
            scopes=pulling(repository),
            headers={"range": f"bytes={begin}-"} if begin else {},
        )
        if response.code not in (200, 206, 416):
            answer = await self._exchanges.requests.answer(response, _MAX_BODY, repository)
            self._exchanges.refuse(answer, "pull", repository, digest)
        length = None if response.length is UNKNOWN_LENGTH else int(response.length)
        content_range = field_of(response.headers, "content-range")
        decided = continue_download(response.code, content_range, length, begin, size)
        if decided in ("refuse", "anew"):
            await self._exchanges.requests.abandon(response)
            if decided == "refuse":
                said = content_range or f"{length} octets"
                raise self._differs(
                    repository, digest, f"it answers {response.code} with {said}, and not {size} octets"
                )
            part.restart()
            return await self._receive(part, repository, digest, size, report)
        if decided == "whole":
            part.restart()

        def take(data: bytes) -> None:
            if part.length + len(data) > size:
                raise self._differs(repository, digest, f"it has more than {size} octets")
            part.append(data)
            report(part.length)

        await self._exchanges.requests.collect(response, take)
        if part.length < size:
            defect = f"after {part.length} of {size} octets"
            raise RegistryInterrupted("registry_cut_off", registry=self._exchanges.host, defect=defect)
        return decided == "append"

    def _differs(self, repository: str, digest: str, defect: str) -> RegistryError:
        return RegistryError(
            "registry_content_differs",
            registry=self._exchanges.host,
            repository=repository,
            digest=digest,
            defect=defect,
        )

    # -- Upload -------------------------------------------------------------------------------------------------------

    async def push(self, repository: str, blob: LocalBlob, mount_from: str, progress: Progress | None) -> Pushed:
        """Upload content; see :meth:`svc.install.registry.client.RegistryClient.push_blob`."""
        with _file_errors(self._exchanges.host, blob.path), blob.path.open("rb") as file:
            upload = _Upload(self._exchanges, repository, blob, file, self._chunk, _Monotone(progress))
            while True:
                try:
                    if await self.has(repository, blob.digest):
                        upload.report(blob.size)
                        return "sent" if upload.begun else "present"
                    if await upload.begin(mount_from):
                        upload.report(blob.size)
                        return "mounted"
                    await upload.run()
                except RegistryInterrupted as error:
                    await upload.retries.pause(error)
                else:
                    return "sent"

    async def may_push(self, repository: str) -> None:
        """Begin an upload and cancel it; raises what forbids it."""
        answer = await self._exchanges.ask(
            "POST",
            f"{repository}/blobs/uploads/",
            scopes=pushing(repository),
            limit=_MAX_BODY,
            repository=repository,
        )
        if answer.code != 202:
            self._exchanges.refuse(answer, "push to", repository, "place for uploads")
        location = urljoin(self._exchanges.requests.base, answer.field("location"))
        # A registry that cannot cancel an upload forgets it after some days.
        await self._exchanges.ask(
            "DELETE", location, scopes=pushing(repository), limit=_MAX_BODY, repository=repository
        )

    async def _in_thread(self, call: Callable[[], None]) -> None:
        await deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call)


class _Monotone:
    """Reports progress that never goes back."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._most = self._seen = 0

    def __call__(self, count: int) -> None:
        if count > self._most:
            self._most = count
            if self._progress is not None:
                self._progress(count)

    def grew(self) -> bool:
        """Whether there was progress since this was last asked."""
        grew, self._seen = self._most > self._seen, self._most
        return grew


class _Upload:
    """One upload, in chunks or in one request, and how far the registry has it."""

    def __init__(
        self, exchanges: Exchanges, repository: str, blob: LocalBlob, file: BinaryIO, chunk: int, report: _Monotone
    ) -> None:
        self._exchanges, self._repository, self._blob, self._file = exchanges, repository, blob, file
        self.report, self.retries = report, exchanges.retries()
        self.begun = False
        self._chunk, self._whole = chunk, blob.size <= chunk
        self._location, self._offset = "", 0

    async def begin(self, mount_from: str) -> bool:
        """Begin anew; gives whether the registry has taken the content from another repository."""
        answer = None
        if mount_from and not self.begun:
            answer = await self._begin_mount(mount_from)
        if answer is None:
            answer = await self._send("POST", f"{self._repository}/blobs/uploads/")
        self.begun = True
        if answer.code == 201 and mount_from:
            return True
        if answer.code != 202:
            self._refuse(answer)
        self._offset = 0
        self._chunk = max(self._chunk, _number(answer.field("oci-chunk-min-length")))
        self._follow(answer)
        return False

    async def run(self) -> None:
        """Send what the registry does not have, until it has all."""
        if self._whole:
            await self._put(self._blob.size)
            return
        interrupted = False
        while True:
            try:
                if interrupted:
                    await self._find_offset()
                    interrupted = False
                if self._offset == self._blob.size:
                    await self._put(0)
                    return
                await self._patch()
            except _UploadLost:
                raise
            except RegistryInterrupted as error:
                if self.report.grew():
                    self.retries.moved()
                await self.retries.pause(error)
                interrupted = True

    async def _begin_mount(self, mount_from: str) -> Answer | None:
        """Begin with a request to take the content from elsewhere; None where that may not even be asked for."""
        query = f"mount={quote(self._blob.digest)}&from={quote(mount_from, safe='')}"
        try:
            answer = await self._send(
                "POST",
                f"{self._repository}/blobs/uploads/?{query}",
                scopes=[*pushing(self._repository), *pulling(mount_from)],
            )
        except RegistryInterrupted:
            raise
        except RegistryError:
            return None
        return answer if answer.code in (201, 202) else None

    async def _patch(self) -> None:
        begin = self._offset
        length = min(self._chunk, self._blob.size - begin)
        headers = {"content-range": f"{begin}-{begin + length - 1}"}
        answer = await self._send("PATCH", self._location, headers=headers, begin=begin, length=length)
        if answer.code == 416 or (answer.code == 400 and error_code(answer.data) == "BLOB_UPLOAD_INVALID"):
            # It takes no chunks, or not like this.
            self._whole = True
            raise self._lost()
        if answer.code not in (201, 202, 204):
            self._refuse(answer)
        self._follow(answer)
        has = received(answer.field("range"), self._blob.size) if answer.field("range") else begin + length
        if has is None or not begin < has <= begin + length:
            raise self._lost()
        self._has(has)

    async def _find_offset(self) -> None:
        answer = await self._send("GET", self._location)
        if answer.code not in (200, 202, 204):
            raise self._lost()
        has = received(answer.field("range"), self._blob.size)
        if has is None:
            raise self._lost()
        self._follow(answer)
        self._has(has)

    async def _put(self, length: int) -> None:
        separator = "&" if "?" in self._location else "?"
        url = f"{self._location}{separator}digest={quote(self._blob.digest)}"
        answer = await self._send("PUT", url, length=length)
        if answer.code not in (201, 204):
            self._refuse(answer)
        self.report(self._blob.size)

    def _has(self, count: int) -> None:
        self._offset = count
        self.report(count)
        if self.report.grew():
            self.retries.moved()

    def _lost(self) -> _UploadLost:
        return _UploadLost(registry=self._exchanges.host, digest=self._blob.digest)

    def _refuse(self, answer: Answer) -> NoReturn:
        code = error_code(answer.data)
        if code == "DIGEST_INVALID":
            raise RegistryError(
                "blob_file_changed",
                registry=self._exchanges.host,
                path=self._blob.path,
                digest=self._blob.digest,
            )
        if answer.code == 404 and self.begun and code in ("BLOB_UPLOAD_UNKNOWN", ""):
            raise self._lost()
        self._exchanges.refuse(answer, "push to", self._repository, self._blob.digest)

    def _follow(self, answer: Answer) -> None:
        location = answer.field("location")
        if location:
            self._location = self._exchanges.requests.checked(
                urljoin(self._location or self._exchanges.requests.base, location)
            )
        elif not self._location:
            defect = "it names no place for an upload"
            raise RegistryError("registry_answer_invalid", registry=self._exchanges.host, defect=defect)

    async def _send(
        self,
        method: str,
        url: str,
        *,
        scopes: list[str] | None = None,
        headers: dict[str, str] | None = None,
        begin: int = 0,
        length: int = 0,
    ) -> Answer:
        fields = dict(headers or {})
        if length:
            fields["content-type"] = "application/octet-stream"
        return await self._exchanges.ask_once(
            method,
            url,
            scopes=scopes or pushing(self._repository),
            limit=_MAX_BODY,
            repository=self._repository,
            headers=fields,
            body=(lambda: self._body(begin, length)) if length else None,
        )

    def _body(self, begin: int, length: int) -> IBodyProducer:
        section: Any = _Section(self._file, self._blob, begin, length, self._exchanges.host)
        producer: IBodyProducer = FileBodyProducer(section)
        return producer


class _UploadLost(RegistryInterrupted):
    """the registry {registry} has lost what was pushed of {digest}"""

    reason = "registry_upload_lost"


class _Section:
    """Some octets of content as a file that is read once."""

    def __init__(self, file: BinaryIO, blob: LocalBlob, begin: int, length: int, host: object) -> None:
        self._file, self._blob, self._host = file, blob, host
        self._at, self._left = blob.offset + begin, length

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Only for the length: to the end and back."""
        end = self._at + self._left
        self._at = end + offset if whence == io.SEEK_END else offset
        self._left = end - self._at
        return self._at

    def read(self, size: int) -> bytes:
        if not self._left:
            return b""
        with _file_errors(self._host, self._blob.path):
            data = os.pread(self._file.fileno(), min(size, self._left), self._at)
        if not data:
            raise RegistryError(
                "blob_file_changed", registry=self._host, path=self._blob.path, digest=self._blob.digest
            )
        self._at += len(data)
        self._left -= len(data)
        return data

    def close(self) -> None:
        """The file stays open for other requests."""


@contextlib.contextmanager
def _file_errors(host: object, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        defect = (error.strerror or str(error)).lower()
        raise RegistryError("blob_file_unusable", registry=host, path=path, defect=defect) from error


def pulling(repository: str) -> list[str]:
    """Return the scope for reading a repository."""
    return [f"repository:{repository}:pull"]


def pushing(repository: str) -> list[str]:
    """Return the scope for writing to a repository."""
    return [f"repository:{repository}:pull,push"]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
