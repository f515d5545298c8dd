"""
What the driver does for a volume of a pod, without gRPC.

Calls are repeated by the kubelet after each restart and each lost answer, so that all of them are idempotent (CSI
specification, "Error Scheme").
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from svc.csi.interface import IMounts
from svc.errors import SvcError
from svc.naming import CSI_SOURCE_ATTRIBUTE

#: The kubelet's own fact about a volume that a pod declares inline.
_EPHEMERAL: Final = "csi.storage.k8s.io/ephemeral"
#: Below the folder of pods: the pod's UID, and the volume's name.
_TARGET: Final = re.compile(r"[0-9a-f-]{1,64}/volumes/kubernetes\.io~csi/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/mount")
_FOLDER_MODE: Final = 0o750


class VolumeRefused(SvcError):
    """the volume {volume} is refused: {defect}"""

    reason = "volume_invalid"
    hint = "the volume of the pod needs csi.driver: csi.svc.internal and csi.readOnly: true"


class VolumeSourceMissing(VolumeRefused):
    """the volume {volume} cannot be mounted yet: {defect}"""

    reason = "volume_source_missing"
    hint = "the SPIRE agent of this node makes the folder: does its pod run?"


class VolumeFailed(VolumeRefused):
    """the volume {volume} failed: {defect}"""

    reason = "volume_failed"
    hint = "the kubelet tries again; is svc-agent privileged, with mountPropagation: Bidirectional?"


class NodeDriver:
    """
    Mounts a folder of the node into the pods of this node.

    Args:
        sources: the folders that can be mounted by name; volumes without the attribute ``source`` get ``""``.
        pods: the kubelet's folder of pods; nothing outside it is touched, since the caller is root.
        mounts: mounts.
    """

    def __init__(self, sources: Mapping[str, str], pods: str, mounts: IMounts) -> None:
        self._sources = dict(sources)
        self._pods = pods
        self._mounts = mounts

    def publish(self, volume: str, target: str, *, read_only: bool, block: bool, attributes: Mapping[str, str]) -> None:
        """
        Mount a volume (``NodePublishVolume``).

        Args:
            volume: its identifier.
            target: where the kubelet wants it.
            read_only: whether the pod declares it so.
            block: whether a block device is wanted.
            attributes: of the volume, and the kubelet's facts about it.

        Raises:
            VolumeRefused: it is not one that this driver serves, or it could not be mounted.
        """
        target = self._checked(volume, target)
        if block:
            raise VolumeRefused(volume=volume, defect="a block device is wanted, and this driver has a folder")
        if not read_only:
            raise VolumeRefused(volume=volume, defect="it is not readOnly")
        if attributes.get(_EPHEMERAL) != "true":
            raise VolumeRefused(volume=volume, defect="it is a persistent volume, and only inline ones are served")
        source = self._source(volume, attributes.get(CSI_SOURCE_ATTRIBUTE, ""))
        try:
            os.makedirs(target, mode=_FOLDER_MODE, exist_ok=True)
            if not self._mounts.mounted(target):
                self._mounts.bind(source, target)
        except OSError as error:
            raise _failed(volume, error) from error

    def unpublish(self, volume: str, target: str) -> None:
        """
        Unmount a volume and remove its folder (``NodeUnpublishVolume``); one that is not there is no error.

        Args:
            volume: its identifier.
            target: where it was mounted.

        Raises:
            VolumeRefused: the path is not one of a pod, or it could not be unmounted.
        """
        target = self._checked(volume, target)
        try:
            # Once for each time that a lost race has mounted it.
            while self._mounts.mounted(target):
                self._mounts.unmount(target)
            with suppress(FileNotFoundError):
                os.rmdir(target)
        except OSError as error:
            raise _failed(volume, error) from error

    def _checked(self, volume: str, target: str) -> str:
        """The target without symbolic links, if it is the place of a CSI volume of a pod."""
        pods = os.path.realpath(self._pods)
        real = os.path.realpath(target)
        if not volume or not _TARGET.fullmatch(os.path.relpath(real, pods)):
            raise VolumeRefused(volume=volume, defect=f"{target} is not a place for CSI volumes below {self._pods}")
        return real

    def _source(self, volume: str, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            raise VolumeRefused(volume=volume, defect=f"there is no folder named {name!r}")
        if not os.path.isdir(source):
            raise VolumeSourceMissing(volume=volume, defect=f"{source} is not there")
        return source


def _failed(volume: str, error: OSError) -> VolumeFailed:
    return VolumeFailed(volume=volume, defect=f"{error.filename}: {error.strerror}")
