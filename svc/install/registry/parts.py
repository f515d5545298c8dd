"""
What has been received of some content, on disk, with its hash.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Final

from svc.folders import sync_folder
from svc.install.registry.errors import RegistryError
from svc.install.registry.references import hash_of

_PIECE: Final = 1024 * 1024


class PartialFile:
    """What has been received of some content, in a file beside that which it will be."""

    _file: Any

    def __init__(self, path: Path, digest: str, host: object) -> None:
        self._path, self._part = path, path.with_name(f"{path.name}.part")
        self._digest, self._host = digest, host
        self._hash = hash_of(digest)
        self.length = 0

    def __enter__(self) -> PartialFile:
        if self._path.exists():
            # Of an earlier run: it is hashed again like any part.
            self._path.replace(self._part)
        descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise RegistryError(
                "blob_file_unusable", registry=self._host, path=self._part, defect="another process is writing it"
            ) from None
        return self

    def __exit__(self, *_exception: object) -> None:
        self._file.close()

    @property
    def found(self) -> str:
        """The digest of what there is."""
        return f"{self._hash.name}:{self._hash.hexdigest()}"

    def read(self) -> None:
        """Hash what is there."""
        while piece := self._file.read(_PIECE):
            self._hash.update(piece)
            self.length += len(piece)

    def append(self, data: bytes) -> None:
        """Add octets."""
        view = memoryview(data)
        while view:
            written = self._file.write(view)
            self._hash.update(view[:written])
            self.length += written
            view = view[written:]

    def restart(self) -> None:
        """Forget what there is."""
        self._file.seek(0)
        self._file.truncate()
        self._hash, self.length = hash_of(self._digest), 0

    def remove(self) -> None:
        """Remove the file."""
        self._part.unlink(missing_ok=True)

    def finish(self) -> None:
        """Give the file its name, durably."""
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        sync_folder(str(self._path.parent))
