"""
Where the facts of the workload statement come from: the configuration, or a downward-API folder.

Owns the reading of the folder, bounded; their contents are checked in :mod:`svc.notary.facts`.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from svc.errors import SvcError
from svc.notary.facts import WorkloadFacts
from svc.proxy.config import WorkloadSettings

#: Annotations of a pod may take 256 KiB together.
_MAX_FILE: Final = 512 * 1024
_NAMES: Final = (
    "namespace",
    "serviceAccount",
    "podName",
    "podUID",
    "node",
    "containers",
    "labels",
    "annotations",
)


class PodInfoUnreadable(SvcError):
    """the folder workload.podInfo {path} cannot be read: {what}"""

    reason = "pod_info_unreadable"
    hint = "mount the downward API there, or give the facts in the configuration"


def read_facts(settings: WorkloadSettings) -> WorkloadFacts:
    """Read the facts as they are now."""
    host_name = socket.gethostname()
    if settings.podInfo is None:
        return settings.facts(host_name)
    return WorkloadFacts.from_files(_files(Path(settings.podInfo)), host_name=host_name, allow=settings.allowed)


def _files(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise PodInfoUnreadable(path=folder, what="there is no such folder")
    found: dict[str, str] = {}
    for name in _NAMES:
        path = folder / name
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_FILE + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise PodInfoUnreadable(path=path, what=error.strerror or str(error)) from error
        if len(data) > _MAX_FILE:
            raise PodInfoUnreadable(path=path, what=f"it is larger than {_MAX_FILE} octets")
        try:
            found[name] = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PodInfoUnreadable(path=path, what="it is no UTF-8") from error
    return found
