"""
Public test doubles: an authority that can build every wrong certificate, and stand-ins for what a workload talks to.

Owns what tests of our own and of embedding applications need. Nothing outside of tests imports it; it does no network
I/O and takes the time as an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.testing.ca import TestAuthority, chain_der, chain_pem, key_der, key_pem
    from svc.testing.certificates import Knobs, Shape, build_certificate
    from svc.testing.store import MemoryStore
    from svc.testing.vectors import Vector, load_vectors
    from svc.testing.workload import MemorySource
else:
    __getattr__ = exports(
        __name__,
        {
            "ca": "TestAuthority chain_der chain_pem key_der key_pem",
            "certificates": "Knobs Shape build_certificate",
            "store": "MemoryStore",
            "vectors": "Vector load_vectors",
            "workload": "MemorySource",
        },
    )

__all__ = [
    "Knobs",
    "MemorySource",
    "MemoryStore",
    "Shape",
    "TestAuthority",
    "Vector",
    "build_certificate",
    "chain_der",
    "chain_pem",
    "key_der",
    "key_pem",
    "load_vectors",
]
