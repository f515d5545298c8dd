"""
Writes the vectors of the workload statement: ``statement/``.

Called by ``make_artifacts.py``, which documents how to run it.
"""

from __future__ import annotations

from typing import Any

from svc import naming
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.ids import printed_id, statement_id
from svc.identity import X509Svid, spki_sha256
from svc.strictjson import b64u_encode
from tests.vectors.artifact_scenario import (
    CENTRAL,
    CLASSICAL,
    CLIENT,
    HYBRID,
    LAST_SECOND,
    MANAGER,
    MOMENT,
    NEIGHBOUR,
    NOW,
    REPLICA,
    SERVER,
    WORKLOAD,
    changed,
    pem_of,
    signers_of,
    statement_of,
    write,
)

IAT = int(NOW.timestamp())


def write_one(
    name: str,
    comment: str,
    expect: str,
    envelope: Envelope,
    *,
    peer: X509Svid | None = SERVER,
    base: dict[str, str] = CLASSICAL,
    **lines: str,
) -> None:
    """Write one vector; ``lines`` are header lines with ``_`` for ``-``."""
    headers = {**base, **{key.replace("_", "-"): value for key, value in lines.items()}}
    sections = {"envelope": envelope.serialize()}
    if peer is not None:
        sections["peer"] = pem_of(peer)
    write(f"statement/{name}", comment, expect, headers, sections)


def own(**claims: object) -> Envelope:
    """Create the server's statement with other claims, signed by the server."""
    return changed(statement_of().envelope, naming.TYPE_STATEMENT, signers_of(SERVER), **claims)


def write_good() -> None:
    """Valid statements."""
    plain = statement_of()
    comment = "A self-issued statement, fetched by its identifier."
    write_one("good", comment, "ok", plain.envelope, id=plain.id, expect_id=WORKLOAD)
    comment = "Both signatures, as in a running deployment."
    write_one("good-hybrid", comment, "ok", statement_of(hybrid=True).envelope, base=HYBRID)
    central = statement_of(issuer=CENTRAL).envelope
    write_one("good-central", "Issued by the manager, which is the central issuer by default.", "ok", central)
    write_one("good-central-named", "Issued by the manager, which is named.", "ok", central, issuers=MANAGER)
    write_one("good-unknown-members", "Members of a later version are ignored.", "ok", own(later=1, svc__later=[]))
    edge = own(nbf=IAT + 60, exp=IAT + 60)
    write_one("good-nbf-leeway", "nbf is 60 s ahead of the clock.", "ok", edge)
    past = {"iat": IAT - 900, "nbf": IAT - 900}
    write_one("good-exp-leeway", "exp was 60 s ago.", "ok", own(**past, exp=IAT - 60))
    write_one("good-iat-leeway", "iat is 60 s ahead of the clock.", "ok", own(iat=IAT + 60))
    write_one("good-iat-at-exp", "Issued in its last second.", "ok", own(exp=IAT))
    comment = "exp is the last second of the year 9999, which has no minute of leeway behind it."
    write_one("good-exp-year-9999", comment, "ok", own(exp=LAST_SECOND))
    comment = "Long after its certificates expired, judged at its iat."
    write_one("good-evidence", comment, "ok", plain.envelope, peer=None, now="2028-01-01T00:00:00Z", mode="evidence")
    comment = "Nothing that is absent is guessed: facts are null and named."
    absent: dict[str, Any] = {
        f"svc__{name}": None for name in ("namespace", "serviceAccount", "podUID", "node", "labels", "annotations")
    }
    write_one("good-absent-facts", comment, "ok", own(**absent, svc__containers=[], svc__truncated=sorted(absent)))


def write_identifiers() -> None:
    """(1) and (2): the identifier."""
    plain = statement_of()
    write_one("id-padded", "Headers carry no padding.", "id_malformed", plain.envelope, id=f"{plain.id}=")
    standard = printed_id(statement_id(b"standard alphabet"))
    write_one("id-standard-base64", "Headers carry base64url.", "id_malformed", plain.envelope, id=standard)
    write_one("id-short", "31 octets are no digest.", "id_malformed", plain.envelope, id=b64u_encode(bytes(31)))
    comment = "A right statement under the identifier of another one."
    write_one("id-of-other", comment, "id_mismatch", plain.envelope, id=statement_id(b"other"))


def write_issuers() -> None:
    """(3) to (5): whose signature is accepted."""
    plain = statement_of().envelope
    reason = "issuer_not_authorised"
    comment = "A self-issued statement where central issuers are named."
    write_one("self-issued-central-domain", comment, reason, plain, issuers=MANAGER)
    write_one("self-issued-refused", "Refused by the local choice alone.", reason, plain, self_issued="refuse")
    comment = "A valid neighbour signs a statement about the server in its own name."
    neighbour = statement_of(issuer=CLIENT).envelope
    write_one("neighbour-signed", comment, reason, neighbour)
    comment = "A valid neighbour signs in the server's name."
    forged = sign_envelope(plain.payload, naming.TYPE_STATEMENT, signers_of(CLIENT))
    write_one("neighbour-in-server-name", comment, "issuer_mismatch", forged)
    comment = "A central issuer that is not the one named."
    central = statement_of(issuer=CENTRAL).envelope
    write_one("central-not-named", comment, reason, central, issuers="spiffe://prod.example.org/svc/other")
    reason = "trust_domain_mismatch"
    write_one("trust-domain-claim", "svc.trustDomain is another.", reason, own(svc__trustDomain="bank.example"))
    foreign = {"sub": "spiffe://bank.example/ns/pay/sa/api", "svc__trustDomain": "bank.example"}
    subject = changed(central, naming.TYPE_STATEMENT, signers_of(CENTRAL), **foreign)
    comment = "A central issuer speaks about another trust domain."
    write_one("trust-domain-subject", comment, reason, subject, issuers=MANAGER)
    receipt = sign_envelope(plain.payload, naming.TYPE_RECEIPT, signers_of(SERVER))
    write_one("typed-as-receipt", "The payload of a statement under another type.", "wrong_type", receipt)
    foreign = {"spiffe": "prod.example.org=stranger-p256"}
    comment = "The bundle does not know the root, and it is current."
    write_one("root-unknown", comment, "chain_untrusted{classical}", plain, peer=None, base={**CLASSICAL, **foreign})
    comment = "The bundle does not know the root, and it could not be refreshed."
    write_one(
        "bundle-stale", comment, "bundle_stale", plain, peer=None, base={**CLASSICAL, **foreign}, stale_since=MOMENT
    )


def write_claims() -> None:
    """(6), (7) and the shape of the claims."""
    comment = "The audience of a receipt."
    write_one("audience-receipt", comment, "audience_mismatch", own(aud=naming.AUDIENCE_RECEIPT))
    comment = "The audience is a text, not an array."
    write_one("audience-array", comment, "malformed", own(aud=[naming.AUDIENCE_STATEMENT]))
    write_one("nbf-ahead", "nbf is 61 s ahead of the clock.", "not_yet_valid", own(nbf=IAT + 61))
    past = {"iat": IAT - 900, "nbf": IAT - 900}
    write_one("exp-past", "exp was 61 s ago.", "expired", own(**past, exp=IAT - 61))
    write_one("exp-before-iat", "Issued a second after its end.", "malformed", own(exp=IAT - 1))
    write_one("exp-year-10000", "A time that no calendar has.", "malformed", own(exp=LAST_SECOND + 1))
    reason = "not_yet_valid"
    write_one("iat-ahead", "iat is 61 s ahead of the clock.", reason, own(iat=IAT + 61))
    comment = "The same as evidence: it is not judged at a time that has not come."
    write_one("iat-ahead-evidence", comment, reason, own(iat=IAT + 61), peer=None, mode="evidence")
    far = {"iat": LAST_SECOND, "exp": LAST_SECOND}
    write_one("iat-year-9999", "Issued in the last second of the year 9999.", reason, own(**far))
    comment = "The same as evidence."
    write_one("iat-year-9999-evidence", comment, reason, own(**far), peer=None, mode="evidence")
    write_one("nbf-year-9999", "Valid from the last second on.", reason, own(nbf=LAST_SECOND, exp=LAST_SECOND))
    write_one("exp-missing", "A statement without an end.", "malformed", own(exp=...))
    write_one("sub-upper-case", "The subject is no SPIFFE ID.", "malformed", own(sub="spiffe://PROD.example.org/x"))
    write_one("jti-short", "jti has 15 octets.", "malformed", own(jti=b64u_encode(bytes(15))))
    write_one("labels-number", "The value of a label is a number.", "malformed", own(svc__labels={"a": 1}))
    write_one("version-2", "A version that is not known.", "unsupported_version", own(svc__v=2))
    twice = statement_of().payload.replace(b'"iat":', b'"iat":1,"iat":')
    comment = "A claim that comes twice."
    write_one("claim-twice", comment, "malformed", sign_envelope(twice, naming.TYPE_STATEMENT, signers_of(SERVER)))


def write_bindings() -> None:
    """(8) and (9): the connection and the expectation."""
    plain = statement_of().envelope
    comment = "The TLS peer is another replica: the same SPIFFE ID, another key."
    write_one("replica-key", comment, "key_mismatch", plain, peer=REPLICA)
    svid = {
        "x5t#S256": b64u_encode(bytes(32)),
        "spki-sha256": b64u_encode(spki_sha256(REPLICA.leaf)),
        "notAfter": MOMENT,
    }
    comment = "A workload signs a statement for the key of its replica."
    write_one("replica-key-claimed", comment, "key_mismatch", own(svc__svid=svid), peer=REPLICA)
    comment = "The statement of a neighbour, right in itself, on the server's connection."
    write_one("neighbour-statement", comment, "subject_mismatch", statement_of(CLIENT).envelope)
    write_one("transport-unbound", "There is no TLS peer to tie it to.", "transport_unbound", plain, peer=None)
    write_one("unbound-accepted", "The same, where that is accepted.", "ok", plain, peer=None, mode="unbound")
    comment = "Another workload was expected."
    write_one("identity-unexpected", comment, "identity_unexpected", plain, expect_id=NEIGHBOUR)


def write_all() -> None:
    """Write all vectors of the folder."""
    write_good()
    write_identifiers()
    write_issuers()
    write_claims()
    write_bindings()
