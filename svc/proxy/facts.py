"""
Where the facts of the workload statement come from: the configuration, or a downward-API folder.

Owns the reading of its files, of up to a size each and all of one version; :mod:`svc.notary.facts` checks them.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from svc.errors import SvcError
from svc.notary.facts import FACT_FILES, WorkloadFacts, parse_downward_map
from svc.proxy.config import WorkloadSettings

#: Octets; the limit of characters is in :mod:`svc.notary.facts`.
_MAX_FILE: Final = 512 * 1024
#: Kubernetes replaces this link when a file changes: all files of one reading must be behind one target.
_VERSION_LINK: Final = "..data"
_MAX_READINGS: Final = 5


class PodInfoUnreadable(SvcError):
    """{path} (workload.podInfo) cannot be read: {what}"""

    reason = "pod_info_unreadable"
    hint = "mount the downward API there, or give the facts in the configuration"


def read_facts(settings: WorkloadSettings) -> WorkloadFacts:
    """Read the facts as they are now."""
    host_name = socket.gethostname()
    if settings.podInfo is None:
        return settings.facts(host_name)
    return WorkloadFacts.from_files(_files(Path(settings.podInfo)), host_name=host_name, allow=settings.allowed)


def read_labels(settings: WorkloadSettings) -> Mapping[str, str] | None:
    """
    Read all labels of the pod, by which policies select it; None where they are not known.

    Raises:
        PodInfoUnreadable, FactsInvalid: they cannot be read.
    """
    if settings.podInfo is None:
        return settings.labels or None
    text = _files(Path(settings.podInfo), ("labels",)).get("labels")
    return None if text is None else parse_downward_map(text, name="labels")


def label_files(settings: WorkloadSettings) -> tuple[str, ...]:
    """The files that :func:`read_labels` reads."""
    return () if settings.podInfo is None else (f"{settings.podInfo}/labels",)


def _files(folder: Path, names: Sequence[str] = FACT_FILES) -> dict[str, str]:
    for _reading in range(_MAX_READINGS):
        version = _version(folder)
        found = _read(folder, names)
        if version == _version(folder):
            return found
    raise PodInfoUnreadable(path=folder, what="it changes during each reading")


def _version(folder: Path) -> str | None:
    try:
        return os.readlink(folder / _VERSION_LINK)
    except OSError:
        return None


def _read(folder: Path, names: Sequence[str]) -> dict[str, str]:
    try:
        present = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        present = False
    except OSError as error:
        raise PodInfoUnreadable(path=folder, what=error.strerror or str(error)) from error
    if not present:
        raise PodInfoUnreadable(path=folder, what="there is no such folder")
    found: dict[str, str] = {}
    for name in names:
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
            raise PodInfoUnreadable(path=path, what=f"invalid UTF-8 at octet {error.start}") from error
    return found
