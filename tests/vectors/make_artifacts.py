"""
Writes the vectors of statements, receipts and evidence: ``statement/``, ``receipt/``, ``publish/``, ``batch/`` and
``evidence/``.

Run ``python -m tests.vectors.make_artifacts`` from the top of the checkout. It overwrites all files of these folders;
the anchors are those that ``make_jws.py`` writes. Keys are derived from seeds, signatures differ from run to run. Most
vectors have the profile ``classical``, which keeps the files small: what they test does not depend on it.

A statement vector has the sections ``envelope`` and ``peer`` (the certificates of the TLS peer), and may have the lines
``id`` (the header ``Svc-Workload-ID``), ``issuers``, ``self-issued``, ``expect-id``, ``stale-since`` and ``mode``
(``unbound`` accepts a statement without a peer, ``evidence`` verifies at ``iat``).

A receipt vector has the sections ``statement``, ``receipt``, ``seen`` (the exchange in the client's view),
``request-body`` and ``response-body`` (the octets that the client sent and received); ``response-complete: false``
means that the response was cut.

A publish vector has the sections ``statement`` and ``receipt``: it is verified as one that a broker has delivered.

A batch vector is a receipt vector of a receipt that was signed with others. ``mode: evidence`` verifies at ``iat`` and
compares with nothing that was seen; the section ``inclusions`` has further places of the same receipt in the batch.

An evidence vector has the section ``evidence`` and may have ``archive`` (roots with windows, instead of the lines
``spiffe`` and ``pq``) and the lines ``time`` (the expected basis of the time) and ``require-trusted-time``.
"""

from __future__ import annotations

from tests.vectors import artifact_scenario, batch_cases, evidence_cases, publish_cases, receipt_cases, statement_cases


def main() -> None:
    """Write all vectors of the artefacts."""
    artifact_scenario.clear("statement", "receipt", "publish", "batch", "evidence")
    statement_cases.write_all()
    receipt_cases.write_all()
    publish_cases.write_all()
    batch_cases.write_all()
    evidence_cases.write_all()


if __name__ == "__main__":
    main()
