"""
The document in which keys are stored: a file of the authority, or a Secret that the manager writes.

A digest covers the whole, so that a damaged one is noticed. It has private keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

from svc import strictjson
from svc.errors import SvcError
from svc.identity.spiffeid import TrustDomain

MAX_DOCUMENT: Final = 1024 * 1024
#: Keys of X.509 roots, of JWT-SVIDs, and of post-quantum roots.
Kind = Literal["x509", "jwt", "pq"]
KINDS: Final[tuple[Kind, ...]] = ("x509", "jwt", "pq")
_VERSION: Final = 1

#: The records of each kind.
Records = Mapping[str, list[dict[str, str]]]


class KeyDocumentInvalid(SvcError):
    """the keys are not used: {defect}"""

    reason = "key_document_invalid"
    hint = "restore the file or Secret; one with new keys has to be fetched by all verifiers"
    defect: str


def serialize_keys(trust_domain: TrustDomain, records: Records) -> bytes:
    """Write the document; kinds that are not given have no keys."""
    keys = {kind: records.get(kind, []) for kind in KINDS}
    document = {"version": _VERSION, "trustDomain": str(trust_domain), "keys": keys}
    return strictjson.dumps({"sha256": _digest(document), "document": document})


def read_keys(data: bytes, trust_domain: TrustDomain) -> Records:
    """
    Read the document.

    Raises:
        KeyDocumentInvalid: it is damaged, malformed, or of another version or trust domain.
    """
    try:
        whole = strictjson.loads_object(data, max_bytes=MAX_DOCUMENT)
        document = whole["document"]
        if whole["sha256"] != _digest(document) or not isinstance(document, dict):
            raise KeyDocumentInvalid(defect="it is damaged: its digest does not match")
        if document["version"] != _VERSION:
            raise KeyDocumentInvalid(defect=f"it has version {document['version']!r}")
        if document["trustDomain"] != str(trust_domain):
            raise KeyDocumentInvalid(defect="it has the keys of another trust domain")
        return {kind: list(document["keys"][kind]) for kind in KINDS}
    except KeyDocumentInvalid:
        raise
    except (SvcError, KeyError, TypeError, ValueError) as error:
        # Without the parser's message, which may contain a part of a key.
        raise KeyDocumentInvalid(defect=f"it is malformed ({type(error).__name__})") from None


def _digest(document: object) -> str:
    return hashlib.sha256(strictjson.dumps(document)).hexdigest()
