"""
Public test doubles: an authority that can build any invalid certificate, and stand-ins for the peers of a workload.

For our own tests and those of embedding applications; nothing else imports it. No network I/O; the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.testing.ca import TestAuthority, chain_der, chain_pem, key_der, key_pem
    from svc.testing.certificates import CertificateFields, CertificateTemplate, build_certificate
    from svc.testing.store import MemoryStore
    from svc.testing.vectors import Vector, load_vectors
    from svc.testing.workload import MemorySource
else:
    __getattr__ = exports(
        __name__,
        {
            "ca": "TestAuthority chain_der chain_pem key_der key_pem",
            "certificates": "CertificateFields CertificateTemplate build_certificate",
            "store": "MemoryStore",
            "vectors": "Vector load_vectors",
            "workload": "MemorySource",
        },
    )

__all__ = [
    "CertificateFields",
    "CertificateTemplate",
    "MemorySource",
    "MemoryStore",
    "TestAuthority",
    "Vector",
    "build_certificate",
    "chain_der",
    "chain_pem",
    "key_der",
    "key_pem",
    "load_vectors",
]
