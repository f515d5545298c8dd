"""What can go wrong with a SPIRE server."""

from __future__ import annotations

from svc.errors import SvcError


class SpireUnavailable(SvcError):
    """the SPIRE server at {address} does not answer: {detail}"""

    reason = "spire_unavailable"
    hint = (
        "is the SPIRE server running and ready, and is the address right? After a loss of its data, agents take the new"
        ' root only with rebootstrap_mode = "auto", or when restarted without their data'
    )


class EntriesRefused(SvcError):
    """the SPIRE server refuses to {action}: {detail}"""

    reason = "entries_refused"
    hint = "the SVID of this process must be that of an entry with admin: true, or be in admin_ids of the server"


class EntryRefused(SvcError):
    """the SPIRE server refuses to {action} the entry {entry}: {detail}"""

    reason = "entry_refused"
    hint = "correct the entry, or delete what is in its way at the server"


class BundleRefused(SvcError):
    """the SPIRE server refuses to {action} the bundle of {trust_domain}: {detail}"""

    reason = "bundle_refused"
    hint = "compare the package of the peer with spire-server bundle list"


class EntryMalformed(SvcError):
    """the registration entry for {spiffe_id} is malformed: {defect}"""

    reason = "entry_malformed"
    hint = "correct the template or the pod from which it was made"
