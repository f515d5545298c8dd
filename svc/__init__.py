"""
svc: a verifiable, quantum-safe identity for every workload and a receipt for every request.

The packages below are layers: ``identity``, ``wire``, ``notary`` and ``policy`` are the core, free of I/O and told the
time; ``transport``, ``store``, ``telemetry`` and ``workload`` touch the world; ``proxy`` and ``cli`` are what people
run. ``docs/architecture.md`` says which may import which, and ``bin/check`` holds them to it.
"""

__version__ = "0.1.0"
