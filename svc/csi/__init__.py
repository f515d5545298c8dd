"""
A CSI node driver that mounts one folder of the node into pods, read-only: the SPIFFE Workload API of the node.

The methods of the Container Storage Interface (version 1) that the kubelet calls for an inline volume, and those by
which the kubelet finds the driver (``pluginregistration.Registration``).
"""

from __future__ import annotations

from svc.csi.driver import NodeDriver, VolumeFailed, VolumeRefused, VolumeSourceMissing
from svc.csi.interface import IMounts
from svc.csi.mounts import LinuxMounts
from svc.csi.service import CsiService, RegistrationFailed

__all__ = [
    "CsiService",
    "IMounts",
    "LinuxMounts",
    "NodeDriver",
    "RegistrationFailed",
    "VolumeFailed",
    "VolumeRefused",
    "VolumeSourceMissing",
]
