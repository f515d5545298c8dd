"""
The credentials of a program: the source of SVIDs and bundles from a Workload API, PQ roots and PQ leaves.

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.workload.archive import ArchiveFile
    from svc.workload.errors import (
        CredentialsMissing,
        PqFileRefused,
        PqIssuerError,
        SocketAddressInvalid,
        WorkloadApiUnavailable,
        WorkloadError,
    )
    from svc.workload.files import read_trusted
    from svc.workload.interface import CredentialSource, SourceState
    from svc.workload.pqclient import fetch_pq_leaf
    from svc.workload.pqfile import PqBundleSource, pq_bundle_path, read_pq_bundles
    from svc.workload.source import WorkloadSource
else:
    __getattr__ = exports(
        __name__,
        {
            "archive": "ArchiveFile",
            "errors": (
                "CredentialsMissing PqFileRefused PqIssuerError SocketAddressInvalid WorkloadApiUnavailable "
                "WorkloadError"
            ),
            "files": "read_trusted",
            "interface": "CredentialSource SourceState",
            "pqclient": "fetch_pq_leaf",
            "pqfile": "PqBundleSource pq_bundle_path read_pq_bundles",
            "source": "WorkloadSource",
        },
    )

__all__ = [
    "ArchiveFile",
    "CredentialSource",
    "CredentialsMissing",
    "PqBundleSource",
    "PqFileRefused",
    "PqIssuerError",
    "SocketAddressInvalid",
    "SourceState",
    "WorkloadApiUnavailable",
    "WorkloadError",
    "WorkloadSource",
    "fetch_pq_leaf",
    "pq_bundle_path",
    "read_pq_bundles",
    "read_trusted",
]
