"""
The Workload API from both sides: the source that a program takes its SVIDs and bundles from, and the authority.

Nothing is loaded before it is asked for, so that a program which needs the source alone never loads the server.
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
