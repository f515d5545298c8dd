"""
Writes the vectors of receipts that were signed together: ``batch/``.

Called by ``make_artifacts.py``, which documents how to run it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from svc import naming
from svc.envelope.envelope import Envelope
from svc.envelope.ids import statement_id
from svc.envelope.keys import Signer
from svc.identity import X509Svid
from svc.notary.artifact import BatchedReceipt
from svc.notary.batch import Inclusion, batch_hash, receipt_leaf, sign_batch
from svc.notary.exchange import RecordedExchange
from svc.notary.level import Level
from svc.notary.merkle import HASH_FUNCTIONS, build_tree
from svc.notary.receipt import PayloadWriter, ReceiptDraft, Redaction
from svc.notary.statement import Statement
from svc.strictjson import b64u_encode, dumps, loads_object
from tests.vectors.artifact_scenario import (
    CLASSICAL,
    CLIENT,
    HYBRID,
    NOW,
    REPLICA,
    REQUEST_BODY,
    RESPONSE_BODY,
    ROOT,
    SERVER,
    changed,
    exchange,
    peer_of,
    random_of,
    receipt_of,
    seen_json,
    signers_of,
    statement_of,
    write,
)
from tests.vectors.material import DOMAIN, Root, make_key, seed

IAT = int(NOW.timestamp())
STATEMENT = statement_of()
PQ_87 = Root("prod-pq-87", "ML-DSA-87")


def draft_of(what: RecordedExchange | None = None, *, issuer: X509Svid = SERVER, about: str = "") -> ReceiptDraft:
    """Return the payload of a receipt that is to be signed."""
    name = about or STATEMENT.id
    return PayloadWriter(Redaction(), random_of("salts")).write(what or exchange(), name, issuer.spiffe_id)


def neighbours(count: int) -> list[ReceiptDraft]:
    """Return receipts of other exchanges."""
    names = [b64u_encode(seed(f"neighbour {number}")[:16]) for number in range(count)]
    return [draft_of(exchange(nonce=name, jti=name)) for name in names]


def batch_of(
    drafts: Sequence[ReceiptDraft],
    *,
    signers: Sequence[Signer] | None = None,
    issuer: X509Svid = SERVER,
    issued_at: int = IAT,
    **claims: object,
) -> list[BatchedReceipt]:
    """Sign receipts together, with these claims of the batch changed."""
    keys = signers or signers_of(issuer)
    timed = [dataclasses.replace(draft, issued_at=issued_at) for draft in drafts]
    made = sign_batch(timed, issuer.spiffe_id, keys, issued_at, random_of("batch"))
    envelope = Envelope.parse(made.envelope)
    if claims:
        envelope = changed(envelope, naming.TYPE_BATCH, keys, **claims)
    return [
        BatchedReceipt(
            draft.payload,
            inclusion,
            envelope,
            {"disclosures": draft.disclosures} if draft.disclosures else {},
        )
        for draft, inclusion in zip(drafts, made.inclusions, strict=True)
    ]


def one_of_three(what: RecordedExchange | None = None, **more: Any) -> BatchedReceipt:
    """Return the receipt of the scenario's exchange, the first of three."""
    return batch_of([draft_of(what), *neighbours(2)], **more)[0]


def moved(receipt: BatchedReceipt, **fields: Any) -> BatchedReceipt:
    """Change the inclusion of a receipt."""
    return dataclasses.replace(receipt, inclusion=dataclasses.replace(receipt.inclusion, **fields))


def bent(receipt: BatchedReceipt, **inclusion: object) -> dict[str, object]:
    """Change the inclusion in the document; ``...`` removes a member."""
    members = {**loads_object(dumps(receipt.inclusion.to_object())), **inclusion}
    kept = {name: value for name, value in members.items() if value is not ...}
    return {**receipt.to_object(), "inclusion": kept}


def write_one(
    name: str,
    comment: str,
    expect: str,
    receipt: BatchedReceipt | Envelope | dict[str, object],
    *,
    seen: RecordedExchange | None = None,
    statement: Envelope | None = None,
    base: dict[str, str] = CLASSICAL,
    inclusions: Sequence[Inclusion] = (),
    **lines: str,
) -> None:
    """Write one vector; ``lines`` are header lines with ``_`` for ``-``."""
    headers = {**base, **{key.replace("_", "-"): value for key, value in lines.items()}}
    sections = {
        "statement": (statement or STATEMENT.envelope).serialize(),
        "receipt": dumps(receipt if isinstance(receipt, dict) else receipt.to_object()),
        "seen": seen_json(seen or exchange()),
        "request-body": REQUEST_BODY,
        "response-body": RESPONSE_BODY,
    }
    if inclusions:
        sections["inclusions"] = dumps([each.to_object() for each in inclusions])
    write(f"batch/{name}", comment, expect, headers, sections)


def write_sizes() -> None:
    """Every place in batches of some sizes, and sizes that no batch has."""
    for size in (2, 3, 7, 64, 256):
        receipts = batch_of([draft_of()] * size)
        comment = f"Every place in a batch of {size}: the same receipt, each time with its own blind."
        write_one(f"size-{size}", comment, "ok", receipts[0], inclusions=[each.inclusion for each in receipts])
    receipt = one_of_three()
    lone = HASH_FUNCTIONS["sha-256"]
    root = b64u_encode(receipt_leaf(receipt.inclusion.blind, receipt.payload, lone))
    alone = batch_of([draft_of()] * 2, svc__size=1, svc__root=root)[0]
    write_one("size-1", "A batch of one.", "malformed", bent(alone, size=1, path=[], blind=_text(receipt)))
    leaves = [receipt_leaf(receipt.inclusion.blind, receipt.payload, lone)] * 257
    whole, paths = build_tree(leaves, lone)
    large = batch_of([draft_of()] * 2, svc__size=257, svc__root=b64u_encode(whole))[0]
    path = [b64u_encode(node) for node in paths[0]]
    write_one("size-257", "A batch of 257.", "malformed", bent(large, size=257, path=path, blind=_text(receipt)))
    last = [b64u_encode(node) for node in paths[256]]
    comment = "The last of a batch of 257, which has a short path."
    write_one("size-257-last", comment, "malformed", bent(large, index=256, size=257, path=last, blind=_text(receipt)))


def _text(receipt: BatchedReceipt) -> str:
    return b64u_encode(receipt.inclusion.blind)


def write_shapes() -> None:
    """Members that are missing, of both forms, or of another type."""
    receipt, alone = one_of_three(), receipt_of(exchange())
    right, lone = receipt.to_object(), alone.to_object()
    without = {name: value for name, value in right.items() if name != "inclusion"}
    for name, comment, document in (
        ("both-members", "Signatures of its own beside the batch.", {**right, "signatures": lone["signatures"]}),
        ("neither-member", "Neither signatures nor a batch.", {"payload": right["payload"]}),
        ("inclusion-alone", "An inclusion beside signatures of its own.", {**lone, "inclusion": right["inclusion"]}),
        ("inclusion-missing", "A batch without an inclusion.", without),
        ("inclusion-null", "The inclusion is null.", {**right, "inclusion": None}),
        ("batch-null", "The batch is null.", {**right, "batch": None}),
        ("batch-null-beside", "A batch of null beside signatures of its own.", {**lone, "batch": None}),
        ("batch-text", "The batch is serialized twice.", {**right, "batch": receipt.batch.serialize().decode()}),
        ("flattened-beside", "A member of the flattened serialization.", {**right, "protected": "e30"}),
        ("index-negative", "The index is -1.", bent(receipt, index=-1)),
        ("index-text", "The index is a text.", bent(receipt, index="0")),
        ("index-true", "The index is false.", bent(receipt, index=False)),
        ("index-missing", "There is no index.", bent(receipt, index=...)),
        ("blind-missing", "There is no blind.", bent(receipt, blind=...)),
        ("blind-short", "A blind of 31 octets.", bent(receipt, blind=b64u_encode(receipt.inclusion.blind[:31]))),
        ("path-missing", "There is no path.", bent(receipt, path=...)),
        ("path-nine", "A path of nine nodes.", bent(receipt, path=[_text(receipt)] * 9)),
        ("path-octets", "A node of 33 octets.", bent(receipt, path=[b64u_encode(bytes(33))] * 2)),
        ("path-spare-bits", "A node with spare bits.", bent(receipt, path=["A" * 42 + "B"] * 2)),
    ):
        write_one(name, comment, "malformed", document)
    comment = "Members of a later version are ignored, in the inclusion, beside it and in the batch."
    later = bent(batch_of([draft_of(), *neighbours(2)], later=1, svc__later={})[0], later=1)
    write_one("good-unknown-members", comment, "ok", {**later, "later": []})


def write_claims() -> None:
    """Types, and the claims of the batch."""
    receipt = one_of_three()
    comment = "The envelope of a batch in the place of a receipt."
    write_one("batch-as-receipt", comment, "wrong_type", receipt.batch)
    other = dataclasses.replace(receipt, batch=receipt_of(exchange()))
    write_one("receipt-as-batch", "The envelope of a receipt in the place of a batch.", "wrong_type", other)
    for name, comment, expect, claims in (
        ("version-2", "A later version.", "unsupported_version", {"svc__v": 2}),
        ("aud-receipt", "The audience of a receipt.", "batch_mismatch{aud}", {"aud": naming.AUDIENCE_RECEIPT}),
        ("aud-array", "The audience as an array.", "malformed", {"aud": [naming.AUDIENCE_BATCH]}),
        ("alg-sha384", "SHA-384 without ML-DSA-87.", "batch_mismatch{alg}", {"svc__alg": "sha-384"}),
        ("alg-unknown", "A hash function that is not known.", "batch_mismatch{alg}", {"svc__alg": "sha-512"}),
        ("size-signed-other", "The batch has another size.", "batch_mismatch{size}", {"svc__size": 4}),
        ("root-missing", "There is no root.", "malformed", {"svc__root": ...}),
        ("root-other", "Another root.", "inclusion_invalid", {"svc__root": b64u_encode(seed("root"))}),
        ("jti-missing", "There is no jti.", "malformed", {"jti": ...}),
        (
            "iss-neighbour",
            "The batch names another issuer than its leaf.",
            "issuer_mismatch",
            {"iss": str(CLIENT.spiffe_id)},
        ),
    ):
        write_one(name, comment, expect, one_of_three(**claims))
    write_one("index-beyond", "The index is the size.", "batch_mismatch{size}", moved(receipt, index=3))
    entry = receipt.batch.signatures[0]
    broken = dataclasses.replace(entry, signature=entry.signature[:-1] + bytes((entry.signature[-1] ^ 1,)))
    forged = dataclasses.replace(receipt, batch=dataclasses.replace(receipt.batch, signatures=(broken,)))
    write_one("signature", "A signature with one bit changed.", "signature_invalid{ES256}", forged)


def write_paths() -> None:
    """Paths that do not lead to the root."""
    drafts = [draft_of(), *neighbours(6)]
    receipts = batch_of(drafts)
    first, last = receipts[0], batch_of([*neighbours(6), draft_of()])[6]
    other = receipts[1].inclusion
    path = first.inclusion.path
    for name, comment, receipt in (
        ("path-short", "The path lacks its last node.", moved(first, path=path[:-1])),
        ("path-short-first", "The path lacks its first node.", moved(first, path=path[1:])),
        ("path-empty", "A path without nodes.", moved(first, path=())),
        ("path-long", "The path has a node too many.", moved(first, path=(*path, path[0]))),
        (
            "path-long-last",
            "The short path of the last one has a node too many.",
            moved(last, path=(*last.inclusion.path, path[0])),
        ),
        ("path-of-neighbour", "The path of another receipt.", moved(first, path=other.path)),
        ("path-reversed", "The nodes in reverse order.", moved(first, path=path[::-1])),
        (
            "path-sha384",
            "Nodes of SHA-384 for a root of SHA-256.",
            moved(first, path=tuple(node + node[:16] for node in path)),
        ),
        ("left-right", "Left and right exchanged: the index of the neighbour.", moved(first, index=1)),
        ("index-other", "The index of another receipt.", moved(first, index=4)),
        ("blind-other", "Another blind.", moved(first, blind=seed("blind"))),
        ("blind-of-neighbour", "The blind of another receipt.", moved(first, blind=other.blind)),
        (
            "payload-other",
            "A payload that is not in the batch.",
            dataclasses.replace(first, payload=draft_of(exchange(query="?x=2")).payload),
        ),
        (
            "inclusion-of-neighbour",
            "The whole inclusion of another receipt.",
            dataclasses.replace(first, inclusion=other),
        ),
    ):
        write_one(name, comment, "inclusion_invalid", receipt)
    comment = "The size is other than signed, with a path that is right for it."
    write_one("size-other", comment, "batch_mismatch{size}", moved(first, size=8))
    sha256 = HASH_FUNCTIONS["sha-256"]
    nodes = [sha256(b"\x01" + each.inclusion.blind + b"svc-receipt/1\0" + each.payload).digest() for each in receipts]
    root, paths = build_tree(nodes, sha256)
    unlike = batch_of(drafts, svc__root=b64u_encode(root))[0]
    comment = "A node given as a leaf: the entry is hashed as the children of a node are."
    write_one("node-as-leaf", comment, "inclusion_invalid", moved(unlike, path=paths[0]))
    bare = [sha256(b"\x00" + b"svc-receipt/1\0" + each.payload).digest() for each in receipts]
    root, paths = build_tree(bare, sha256)
    unblinded = batch_of(drafts, svc__root=b64u_encode(root))[0]
    write_one("no-blind", "A tree whose entries have no blind.", "inclusion_invalid", moved(unblinded, path=paths[0]))


def write_signers() -> None:
    """Whose batch is accepted, and with which keys."""
    statement = statement_of(hybrid=True)
    hybrid = batch_of([draft_of(about=statement.id), *neighbours(2)], signers=signers_of(SERVER, hybrid=True))
    comment = "Both signatures, as in a running deployment."
    write_one("good-hybrid", comment, "ok", hybrid[0], statement=statement.envelope, base=HYBRID)
    write_strong()
    secret = exchange(request_headers=(*exchange().request_headers, (b"Authorization", b"Bearer s3cret")))
    write_one("disclosures", "A redacted header, proved by its salt.", "ok", one_of_three(secret), seen=secret)
    bare = dataclasses.replace(one_of_three(secret), extra={})
    comment = "Without its salt a digest proves nothing."
    write_one("disclosures-missing", comment, "request_mismatch{header:2}", bare, seen=secret)
    comment = "The receipt of another workload in the batch."
    foreign = batch_of([draft_of(issuer=CLIENT), *neighbours(2)])[0]
    write_one("receipt-of-neighbour", comment, "batch_mismatch{iss}", foreign)
    comment = "A valid neighbour signs the batch in its own name."
    write_one("batch-of-neighbour", comment, "batch_mismatch{iss}", one_of_three(issuer=CLIENT))
    comment = "The receipt of another statement of the workload in the batch."
    old = changed(statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), svc__node="n2")
    earlier = batch_of([draft_of(about=statement_id(old.payload)), *neighbours(2)])[0]
    write_one("receipt-of-other-statement", comment, "statement_mismatch", earlier)
    comment = "The receipt of another replica in the batch: its certificate is not the one that signed."
    replica = one_of_three(exchange(server=peer_of(REPLICA)))
    write_one("receipt-of-replica", comment, "key_mismatch", replica)
    comment = "Another replica signs the batch: another key than the statement's."
    write_one("batch-of-replica", comment, "key_mismatch", one_of_three(signers=signers_of(REPLICA)))
    comment = "An unsigned record as a leaf."
    write_one("level-log", comment, "level_mismatch", one_of_three(exchange(level=Level.LOG_REQUEST)))


def write_strong() -> None:
    """ML-DSA-87 in the set, and with it SHA-384, whatever the profile."""
    key = make_key("ML-DSA-87", "workload pq 87")
    keys = (*signers_of(SERVER), Signer.from_chain(key, PQ_87.pq_leaf(key, SERVER.leaf, str(SERVER.spiffe_id))))
    strong = changed(STATEMENT.envelope, naming.TYPE_STATEMENT, keys)
    base = {**HYBRID, "pq": f"{DOMAIN}=prod-pq-87"}
    drafts = [draft_of(), *neighbours(2)]
    receipt = batch_of(drafts, signers=keys)[0]
    write_one("good-sha384", "SHA-384 beside ML-DSA-87.", "ok", receipt, statement=strong, base=base)
    comment = "The set decides, not the profile: SHA-384 where ML-DSA-87 is not even verified."
    write_one("good-sha384-classical", comment, "ok", receipt, statement=strong)
    sha256 = HASH_FUNCTIONS["sha-256"]
    leaves = [receipt_leaf(receipt.inclusion.blind, each.payload, sha256) for each in drafts]
    root, paths = build_tree(leaves, sha256)
    weak = batch_of(drafts, signers=keys, svc__alg=batch_hash(["ES256"]), svc__root=b64u_encode(root))[0]
    comment = "SHA-256 beside ML-DSA-87."
    short = moved(weak, path=paths[0])
    write_one("alg-sha256", comment, "batch_mismatch{alg}", short, statement=strong, base=base)


def write_times() -> None:
    """When receipt and batch were issued, online and as evidence."""
    for seconds, expect in ((-1, "batch_mismatch{iat}"), (60, "ok"), (61, "batch_mismatch{iat}")):
        comment = f"The batch was issued {seconds} s after the receipt."
        name = f"iat-{'before' if seconds < 0 else seconds}"
        write_one(name, comment, expect, one_of_three(iat=IAT + seconds))
    soon = one_of_three(exchange(completed=NOW + timedelta(seconds=60)), iat=IAT + 61)
    write_one("iat-ahead", "The batch was issued 61 s after now, the receipt 60.", "time_skew", soon)
    evidence: dict[str, Any] = {"mode": "evidence"}
    write_one(
        "evidence", "Both times in the validity of all certificates.", "ok", one_of_three(iat=IAT + 9), **evidence
    )
    second = timedelta(seconds=1)
    reason = "certificate_not_valid_at_time"
    ended, statement = _leaf(not_after=NOW + 10 * second)
    receipt = _of(ended, statement)
    comment = "The leaf ended between the two times."
    write_one("evidence-leaf-ended", comment, reason, receipt, statement=statement.envelope, **evidence)
    begun, statement = _leaf(not_before=NOW + 10 * second)
    moved_on = changed(statement.envelope, naming.TYPE_STATEMENT, signers_of(begun), iat=IAT + 20)
    receipt = _of(begun, dataclasses.replace(statement, id=statement_id(moved_on.payload)))
    comment = "The leaf began between the two times."
    write_one("evidence-leaf-begun", comment, reason, receipt, statement=moved_on, **evidence)
    early = changed(
        STATEMENT.envelope, naming.TYPE_STATEMENT, signers_of(SERVER), iat=IAT - 60, nbf=IAT - 60, exp=IAT - 30
    )
    late = batch_of([draft_of(about=statement_id(early.payload)), *neighbours(2)], issued_at=IAT + 40)[0]
    comment = "The statement had ended 30 s before the receipt, within the leeway, and 70 s before the batch."
    write_one("evidence-statement-ended", comment, "time_skew", late, statement=early, **evidence)


def _leaf(**validity: Any) -> tuple[X509Svid, Statement]:
    """Create an SVID of the server's key with another validity, and its statement."""
    svid = X509Svid(
        SERVER.spiffe_id,
        ROOT.leaf(SERVER.private_key, str(SERVER.spiffe_id), **validity),
        SERVER.private_key,
    )
    return svid, statement_of(svid)


def _of(svid: X509Svid, statement: Statement) -> BatchedReceipt:
    """Create a receipt of now in a batch of 30 s later."""
    own = draft_of(exchange(server=peer_of(svid)), about=statement.id)
    return batch_of([own, *neighbours(2)], issuer=svid, issued_at=IAT + 30)[0]


def write_all() -> None:
    """Write all vectors of the folder."""
    write_sizes()
    write_shapes()
    write_claims()
    write_paths()
    write_signers()
    write_times()
