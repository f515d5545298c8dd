"""What ``twistd`` learns from this project: one line a process, nothing else."""

from __future__ import annotations

from svc.process.plugin import DaemonMaker

svc_proxy = DaemonMaker(
    "svc proxy",
    "svc.proxy.tap",
    "Proves with SPIFFE identities which workload answered and signs receipts.",
    "svc-proxy",
)
svc_authority = DaemonMaker(
    "svc authority",
    "svc.authority.tap",
    "An ephemeral SPIFFE trust domain for one machine, and an issuer of post-quantum leaves.",
    "svc-authority",
)
svc_broker = DaemonMaker(
    "svc broker",
    "svc.broker.tap",
    "An embedded MQTT broker with access by SPIFFE identity.",
    "svc-broker",
)
svc_agent = DaemonMaker(
    "svc agent",
    "svc.agent.tap",
    "The agent of a node: mounts the SPIFFE Workload API into pods, writes SVIDs to files.",
    "svc-agent",
)
svc_manager = DaemonMaker(
    "svc manager",
    "svc.manager.tap",
    "The controllers of a Kubernetes cluster; needs the extra svc[kubernetes].",
    "svc-manager",
)
svc_registrar = DaemonMaker(
    "svc registrar",
    "svc.registrar.tap",
    "Keeps the registration entries of a SPIRE server as its configuration says.",
    "svc-registrar",
)
