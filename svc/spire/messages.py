"""
The messages of SPIRE's Entry and Bundle APIs that are used here (``spire.api.server.entry.v1``,
``spire.api.server.bundle.v1`` and ``spire.api.types``).
"""

from __future__ import annotations

from typing import Final

from svc.protomessages import Fields, describe

_MESSAGES: Final[dict[str, Fields]] = {
    "SPIFFEID": {1: ("trust_domain", "string"), 2: ("path", "string")},
    "Selector": {1: ("type", "string"), 2: ("value", "string")},
    "Status": {1: ("code", "int32"), 2: ("message", "string")},
    "Entry": {
        1: ("id", "string"),
        2: ("spiffe_id", "SPIFFEID"),
        3: ("parent_id", "SPIFFEID"),
        4: ("selectors", "Selector[]"),
        5: ("x509_svid_ttl", "int32"),
        6: ("federates_with", "string[]"),
        7: ("admin", "bool"),
        8: ("downstream", "bool"),
        9: ("expires_at", "int64"),
        10: ("dns_names", "string[]"),
        12: ("store_svid", "bool"),
        13: ("jwt_svid_ttl", "int32"),
        14: ("hint", "string"),
    },
    "EntryFilter": {1: ("by_spiffe_id", "SPIFFEID")},
    "ListEntriesRequest": {1: ("filter", "EntryFilter"), 3: ("page_size", "int32"), 4: ("page_token", "string")},
    "ListEntriesResponse": {1: ("entries", "Entry[]"), 2: ("next_page_token", "string")},
    # Of creations and updates; a deletion names the identifier alone.
    "BatchEntryRequest": {1: ("entries", "Entry[]")},
    "BatchDeleteEntryRequest": {1: ("ids", "string[]")},
    "Result": {1: ("status", "Status")},
    "BatchEntryResponse": {1: ("results", "Result[]")},
    "X509Certificate": {1: ("asn1", "bytes")},
    "JWTKey": {1: ("public_key", "bytes"), 2: ("key_id", "string"), 3: ("expires_at", "int64")},
    "Bundle": {
        1: ("trust_domain", "string"),
        2: ("x509_authorities", "X509Certificate[]"),
        3: ("jwt_authorities", "JWTKey[]"),
        4: ("refresh_hint", "int64"),
        5: ("sequence_number", "int64"),
    },
    "GetBundleRequest": {},
    "ListFederatedBundlesRequest": {2: ("page_size", "int32"), 3: ("page_token", "string")},
    "ListFederatedBundlesResponse": {1: ("bundles", "Bundle[]"), 2: ("next_page_token", "string")},
    "BatchSetFederatedBundleRequest": {1: ("bundle", "Bundle[]")},
    # The mode is an enumeration there, which has the same encoding.
    "BatchDeleteFederatedBundleRequest": {1: ("trust_domains", "string[]"), 2: ("mode", "int32")},
    # Of both; the status alone is read.
    "BatchBundleResponse": {1: ("results", "Result[]")},
}


_message = describe("svc/spire/messages.proto", "spire.api.types", _MESSAGES)

EntryMessage: Final = _message("Entry")
ListEntriesRequest: Final = _message("ListEntriesRequest")
ListEntriesResponse: Final = _message("ListEntriesResponse")
BatchEntryRequest: Final = _message("BatchEntryRequest")
BatchDeleteEntryRequest: Final = _message("BatchDeleteEntryRequest")
BatchEntryResponse: Final = _message("BatchEntryResponse")
BundleMessage: Final = _message("Bundle")
GetBundleRequest: Final = _message("GetBundleRequest")
ListFederatedBundlesRequest: Final = _message("ListFederatedBundlesRequest")
ListFederatedBundlesResponse: Final = _message("ListFederatedBundlesResponse")
BatchSetFederatedBundleRequest: Final = _message("BatchSetFederatedBundleRequest")
BatchDeleteFederatedBundleRequest: Final = _message("BatchDeleteFederatedBundleRequest")
BatchBundleResponse: Final = _message("BatchBundleResponse")
#: Of a deletion: entries that federate with the trust domain do so no more.
DISSOCIATE: Final = 2
