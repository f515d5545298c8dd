"""
Writes the vectors of evidence files: ``evidence/``.

Called by ``make_artifacts.py``, which documents how to run it.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from svc import naming
from svc.envelope.envelope import Envelope
from svc.envelope.ids import statement_id
from svc.identity import BundleArchive, BundleSet, TrustAnchor, TrustDomain, X509Bundle
from svc.notary.artifact import BatchedReceipt
from svc.notary.evidence import EvidenceFile
from svc.notary.exchange import BodySummary
from svc.strictjson import b64u_encode, dumps, loads_object
from tests.vectors.artifact_scenario import (
    CLASSICAL,
    CLIENT,
    HYBRID,
    LAST_SECOND,
    MANAGER,
    MOMENT,
    NEIGHBOUR,
    NOW,
    REQUEST_BODY,
    RESPONSE_BODY,
    ROOT,
    SERVER,
    changed,
    exchange,
    receipt_of,
    signers_of,
    statement_of,
    write,
)
from tests.vectors.batch_cases import batch_of, draft_of, neighbours
from tests.vectors.material import DOMAIN
from tests.vectors.publish_cases import PAYLOAD, publish, publish_receipt

LATER = "2028-01-01T00:00:00Z"
DAY = timedelta(days=1)


def write_one(
    name: str,
    comment: str,
    expect: str,
    data: bytes,
    *,
    base: dict[str, str] = CLASSICAL,
    archive: bytes | None = None,
    **lines: str,
) -> None:
    """Write one vector; ``lines`` are header lines with ``_`` for ``-``; an empty one is left out."""
    headers = {**base, "now": LATER, **{key.replace("_", "-"): value for key, value in lines.items()}}
    sections = {"evidence": data.rstrip(b"\n")}
    if archive is not None:
        headers.pop("spiffe")
        sections["archive"] = archive
    write(f"evidence/{name}", comment, expect, {key: value for key, value in headers.items() if value}, sections)


def file_of(
    *,
    statement: Envelope | None = None,
    receipt: Envelope | BatchedReceipt | None = None,
    request_body: bytes | None = REQUEST_BODY,
    response_body: bytes | None = RESPONSE_BODY,
) -> EvidenceFile:
    """Create the evidence of the scenario's exchange."""
    return EvidenceFile(
        statement or statement_of().envelope, receipt or receipt_of(exchange()), request_body, response_body
    )


def bent(**members: object) -> bytes:
    """Create a valid file with other members; ``...`` removes one."""
    found = {**loads_object(file_of().serialize()), **members}
    return dumps({name: value for name, value in found.items() if value is not ...})


def archive_of(first: datetime, last: datetime | None) -> bytes:
    """Create a bundle archive in which the root has a window."""
    anchor = TrustAnchor(ROOT.certificate, first, last)
    return BundleArchive(BundleSet.of(X509Bundle(TrustDomain.parse(DOMAIN), (anchor,)))).serialize()


def write_all() -> None:
    """Write all vectors of the folder."""
    _write_time()
    _write_rules()
    _write_files()
    write_messages()


def _write_time() -> None:
    right = file_of().serialize()
    comment = "Evidence outlives its certificates; its time rests on the signer's word."
    write_one("asserted-time", comment, "ok", right, time="asserted")
    statement = statement_of(hybrid=True)
    receipt = receipt_of(exchange(), statement=statement, signers=signers_of(SERVER, hybrid=True))
    hybrid = file_of(statement=statement.envelope, receipt=receipt).serialize()
    write_one("good-hybrid", "Both signatures.", "ok", hybrid, base=HYBRID, time="asserted")
    batched = batch_of([draft_of(), *neighbours(2)])[0]
    comment = "A receipt that was signed together with two others."
    write_one("batched", comment, "ok", file_of(receipt=batched).serialize(), time="asserted")
    moved = dataclasses.replace(batched, inclusion=dataclasses.replace(batched.inclusion, index=1))
    write_one("batched-moved", "Its index was changed.", "inclusion_invalid", file_of(receipt=moved).serialize())
    both = {**batched.to_object(), "signatures": []}
    comment = "Members of both forms of a receipt."
    write_one("batched-both-members", comment, "malformed", bent(receipt=both))
    comment = "A trusted time is required, and nothing backs this one."
    write_one("trusted-time-required", comment, "time_unproven", right, require_trusted_time="true")
    comment = "The root left the bundle a day before the evidence says it was made."
    reason = "certificate_not_valid_at_time"
    write_one("root-retired-before-iat", comment, reason, right, archive=archive_of(NOW - 9 * DAY, NOW - DAY))
    comment = "The root left the bundle a day after the evidence was made."
    write_one("root-retired-after-iat", comment, "ok", right, archive=archive_of(NOW - 9 * DAY, NOW + DAY))
    comment = "The root came into the bundle a day after the evidence says it was made."
    write_one("root-not-yet-known", comment, reason, right, archive=archive_of(NOW + DAY, None))
    comment = "The evidence is from after now, though its certificates are valid then."
    ahead = int(NOW.timestamp()) + 120
    late = changed(receipt_of(exchange()), naming.TYPE_RECEIPT, signers_of(SERVER), iat=ahead)
    write_one("from-the-future", comment, "time_skew", file_of(receipt=late).serialize(), now=MOMENT)
    comment = "The statement is from 61 s after now."
    early = changed(statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), iat=int(NOW.timestamp()) + 61)
    write_one("statement-from-the-future", comment, "not_yet_valid", file_of(statement=early).serialize(), now=MOMENT)
    comment = "The statement ends in the last second of the year 9999."
    endless = changed(statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), exp=LAST_SECOND)
    claims = {"svc__workloadStatementID": statement_id(endless.payload)}
    under = changed(receipt_of(exchange()), naming.TYPE_RECEIPT, signers_of(SERVER), **claims)
    write_one("statement-year-9999", comment, "ok", file_of(statement=endless, receipt=under).serialize())


def _write_rules() -> None:
    right = file_of().serialize()
    write_one("no-anchor", "No anchors are given, and none come from the file.", "no_anchor", right, spiffe="")
    comment = "Anchors of another trust domain only."
    write_one("other-anchor", comment, "trust_domain_unknown", right, spiffe="bank.example=prod-p256")
    comment = "A root of the same name with another key."
    write_one("stranger-anchor", comment, "chain_untrusted{classical}", right, spiffe=f"{DOMAIN}=stranger-p256")
    reason = "issuer_not_authorised"
    write_one("self-issued-central-domain", "Central issuers are named.", reason, right, issuers=MANAGER)
    write_one("identity-unexpected", "Another workload is expected.", "identity_unexpected", right, expect_id=NEIGHBOUR)
    neighbour = file_of(statement=statement_of(CLIENT).envelope).serialize()
    write_one("neighbour-statement", "Statement and receipt of two workloads.", "issuer_mismatch", neighbour)
    comment = "The request body in the file is not the one of the receipt."
    write_one("request-body-other", comment, "request_mismatch{body}", file_of(request_body=b"{}").serialize())
    comment = "The response body in the file is not the one of the receipt."
    write_one("response-body-other", comment, "response_mismatch{body}", file_of(response_body=b"{}").serialize())
    _write_bodies()
    _write_disclosures()
    flat = loads_object(file_of().serialize())["receipt"]
    swapped = bent(statement=flat)
    write_one("receipt-as-statement", "A receipt in the place of the statement.", "wrong_type", swapped)


def _write_bodies() -> None:
    cut = receipt_of(exchange(response_body=BodySummary.of(RESPONSE_BODY[:4], complete=False)))
    reason = "response_mismatch{body}"
    comment = "The response was cut, and the file has octets behind those that the receipt attests."
    write_one("response-behind-cut", comment, reason, file_of(receipt=cut).serialize())
    comment = "The response was cut, and the file has what the receipt attests; it is still not the whole response."
    write_one("response-cut", comment, reason, file_of(receipt=cut, response_body=RESPONSE_BODY[:4]).serialize())
    comment = "The response was cut, and the file has no body of it."
    write_one("response-cut-without-body", comment, "ok", file_of(receipt=cut, response_body=None).serialize())
    early = receipt_of(exchange(status=413, request_body=BodySummary.of(REQUEST_BODY[:4], complete=False)))
    comment = "The server answered after 4 octets of the request body, which are the ones in the file."
    write_one("request-early", comment, "ok", file_of(receipt=early).serialize())
    comment = "The server answered after 4 octets of the request body, and the file has 3 of them."
    fewer = file_of(receipt=early, request_body=REQUEST_BODY[:3]).serialize()
    write_one("request-early-fewer", comment, "request_mismatch{body}", fewer)
    write_one("bodies-without-receipt", "No receipt attests the bodies.", "malformed", bent(receipt=...))
    head = receipt_of(exchange(method="HEAD"))
    comment = "A body in the file for an answer that has none."
    write_one("head-with-body", comment, reason, file_of(receipt=head).serialize())
    body = {"size": len(RESPONSE_BODY), "sha-256": b64u_encode(BodySummary.of(RESPONSE_BODY).sha256), "complete": True}
    counted = changed(head, naming.TYPE_RECEIPT, signers_of(SERVER), svc__response__body=body)
    comment = "The receipt attests a body of an answer that has none."
    write_one("head-counted", comment, reason, file_of(receipt=counted).serialize())


def _write_disclosures() -> None:
    secret = (*exchange().request_headers, (b"Authorization", b"Bearer s3cret"))
    receipt = receipt_of(exchange(request_headers=secret))
    write_one("disclosures", "The salt of a redacted header.", "ok", file_of(receipt=receipt).serialize())
    bare = Envelope(receipt.payload, receipt.signatures)
    write_one("disclosures-left-out", "A reader's copy has no salts.", "ok", file_of(receipt=bare).serialize())
    salt = "A" * 22
    for name, comment, disclosures in (
        ("null", "Disclosures are an object.", None),
        ("side-array", "The salts of a side are an object.", {"request": [salt]}),
        ("side", "Salts of neither request nor response.", {"proxy": {"2": salt}}),
        ("short", "A salt of one octet.", {"request": {"2": "AA"}}),
        ("spare-bits", "A salt that is not canonical.", {"request": {"2": "A" * 21 + "B"}}),
        ("clear", "More salts than redacted values.", {"request": {"1": salt, "2": salt}}),
        ("trailer", "A salt for a trailer that is not there.", {"request": {"trailer:2": salt}}),
        ("response", "A salt of the request on the side of the response.", {"response": {"2": salt}}),
    ):
        data = file_of(receipt=bare.with_extra(disclosures=disclosures)).serialize()
        write_one(f"disclosures-{name}", comment, "malformed", data)


def write_messages() -> None:
    """Evidence of a message of MQTT."""
    receipt = publish_receipt(publish())
    right = file_of(receipt=receipt, request_body=PAYLOAD, response_body=None)
    write_one("publish", "The payload of a message, which its receipt attests.", "ok", right.serialize())
    other = dataclasses.replace(right, request_body=b"22.5")
    write_one("publish-body-other", "Another payload.", "request_mismatch{body}", other.serialize())
    answered = dataclasses.replace(right, response_body=b"")
    comment = "A body of an acknowledgement, which has none."
    write_one("publish-response-body", comment, "response_mismatch{body}", answered.serialize())


def _write_files() -> None:
    comment = "A statement without a receipt is evidence too."
    write_one("statement-alone", comment, "ok", bent(receipt=..., request=..., response=...))
    write_one("without-bodies", "The bodies were not kept.", "ok", bent(request=..., response=...))
    write_one("unknown-members", "Members of a later version are ignored.", "ok", bent(later=1))
    write_one("version-2", "A version that is not known.", "unsupported_version", bent(type="svc-evidence/2", v=2))
    write_one("no-type", "No type.", "malformed", bent(type=...))
    write_one("no-statement", "No statement.", "malformed", bent(statement=...))
    write_one("body-base64url", "A body in the URL-safe alphabet.", "malformed", bent(request={"body": "_-8="}))
    twice = bent().replace(b'"v":1', b'"v":1,"v":1', 1)
    write_one("member-twice", "A member that comes twice.", "malformed", twice)
    write_one("cut", "The file is cut.", "malformed", bent()[:-1])
    write_one("empty", "An empty file.", "malformed", b"")
