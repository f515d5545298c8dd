"""
Signed envelopes: what statements, receipts, licenses and bootstrap packages have in common.

Owns the format ``svc-jws/1``: its octets, the algorithms and keys that sign it, the claims and identifiers of a
payload, and the profile of a verifier. What an artifact says, and whose keys may sign it, is decided above.
"""
