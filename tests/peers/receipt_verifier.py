"""
Verifies the receipts that a running proxy serves, as a client that kept nothing but its nonces.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

from svc.envelope.ids import receipt_id
from svc.envelope.profile import Profile
from svc.identity.archive import BundleArchive
from svc.notary.artifact import parse_receipt
from svc.notary.exchange import BodySummary, ExchangeOutcome
from svc.notary.receipt_claims import ReceiptClaims
from svc.notary.receiptcheck import verify_receipt
from svc.notary.statement import StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from tests.peers.authority import RunningAuthority
from tests.peers.independent_clients import RawConnection

NOTARY = "/.well-known/svc-notary/v1"


class ReceiptVerifier:
    """
    Holds what a verifier trusts.

    Args:
        authority: whose roots are trusted.
    """

    def __init__(self, authority: RunningAuthority) -> None:
        archive = BundleArchive.parse(authority.archive_path.read_bytes())
        self._anchors = Anchors(archive.spiffe, archive.pq)
        self._statements: dict[str, StatementEvidence] = {}

    def receipt(self, connection: RawConnection, nonce: str) -> ReceiptClaims | None:
        """
        Fetch a receipt by its nonce and again by its id, and verify it with its statement.

        Args:
            connection: to the proxy.
            nonce: of the exchange.

        Returns:
            What it claims; None where the proxy has none.

        Raises:
            EnvelopeError: it does not verify.
            AssertionError: the proxy answers something else.
        """
        found = connection.request(f"{NOTARY}/receipts/by-request/{nonce}")
        if found.status == 404:
            return None
        if found.status != 200:
            raise AssertionError(f"{found.status} for the receipt of {nonce}")
        receipt = parse_receipt(found.body)
        again = connection.request(f"{NOTARY}/receipts/{receipt_id(receipt.payload)}")
        if (again.status, again.body) != (200, found.body):
            raise AssertionError(f"{nonce} has another receipt under its id")
        named = json.loads(receipt.payload)["svc"]["workloadStatementID"]
        proof = verify_receipt(
            receipt,
            statement=self._statement(connection, named),
            profile=Profile.HYBRID,
            anchors=self._anchors,
            now=datetime.now(UTC),
            seen=None,
        )
        claims = ReceiptClaims.read(proof.claims)
        if claims.nonce != nonce:
            raise AssertionError(f"asked for {nonce}, got the receipt of {claims.nonce}")
        return claims

    def _statement(self, connection: RawConnection, name: str) -> StatementEvidence:
        known = self._statements.get(name)
        if known is None:
            found = connection.request(f"{NOTARY}/statements/{name}")
            if found.status != 200:
                raise AssertionError(f"{found.status} for statement {name}, which a receipt names")
            known = self._statements[name] = verify_statement(
                found.body,
                expected_id=name,
                profile=Profile.HYBRID,
                anchors=self._anchors,
                now=datetime.now(UTC),
                peer=None,
                unbound_ok=True,
            )
        return known


def says(claims: ReceiptClaims, status: int, body: bytes) -> bool:
    """
    Compare a receipt with a response.

    Args:
        claims: of the receipt.
        status: of the response.
        body: its content, empty where it has none.

    Returns:
        Whether the receipt attests exactly this response, released whole.
    """
    response = claims.response
    whole = BodySummary(len(body), hashlib.sha256(body).digest(), True)
    return (
        claims.outcome is ExchangeOutcome.COMPLETE
        and response is not None
        and (response.status, response.body) == (status, whole)
    )
