"""
svc: a verifiable, quantum-safe identity for every workload and a receipt for every request.

The packages are layers: ``identity``, ``wire``, ``notary`` and ``policy`` are the core, without I/O and with the time
as an argument; ``transport``, ``store``, ``telemetry`` and ``workload`` do I/O; ``proxy``, ``broker`` and ``cli`` are
programs. ``docs/architecture.md`` states which package may import which, and ``bin/check`` enforces it.
"""

__version__ = "0.2.0"
