"""Why a bootstrap package, its import or a federation reference is refused, beside the reasons of the envelope."""

from __future__ import annotations

from svc.envelope.errors import EnvelopeError
from svc.errors import Reason, SvcError

_ANOTHER_WAY = "compare it with what the peer's administrator reads aloud, and do not import it before they are equal"


class PackageRefused(EnvelopeError):
    """the bootstrap package is refused"""

    reason = "package_refused"
    hint = "ask the peer's administrator for a new package"
    reasons = {
        "issuer_mismatch": Reason(
            "the package is of the trust domain {trust_domain}, but names the issuer {found}",
            "ask the peer's administrator for a new package",
        ),
        "root_mismatch": Reason(
            "the {alg} signature is by the key {found}, and the federation root of the package is {expected}",
            "the package was put together from two; do not trust it",
        ),
        "package_expired": Reason(
            "the package of {trust_domain} expired at {expires}, and it is {now}",
            "ask the peer's administrator for a new package; compare the clocks of both machines",
        ),
        "package_not_yet_valid": Reason(
            "the package of {trust_domain} was made at {issued}, and it is {now}",
            "compare the clocks of both machines",
        ),
        "fingerprint_mismatch": Reason(
            "the package of {trust_domain} has the fingerprint {found}; expected {expected}", _ANOTHER_WAY
        ),
        "wrong_trust_domain": Reason(
            "the package is of the trust domain {found}; expected {expected}",
            "a reference and a relationship are for one trust domain alone",
        ),
        "own_trust_domain": Reason(
            "the package is of the own trust domain {trust_domain}", "import the package of the other side"
        ),
        "already_federated": Reason(
            "there is a relationship with {trust_domain} already; its continuity is {continuity}",
            "packages that follow the pinned one renew it; --rebootstrap replaces one that does not work any more",
        ),
        "continuity_working": Reason(
            "the relationship with {trust_domain} works, and --rebootstrap replaces only one that does not",
            "--force-rebootstrap replaces it all the same",
        ),
        "package_rolled_back": Reason(
            "the package of {trust_domain} is older than the pinned one: {defect}",
            "somebody serves an old package, or the peer was restored from a backup: ask its administrator",
        ),
        "successor_invalid": Reason(
            "package {sequence} of {trust_domain} does not follow the pinned one: {defect}",
            "the peer made new federation roots, or somebody else answers: ask its administrator, then --rebootstrap",
        ),
        "packages_missing": Reason(
            "package {sequence} of {trust_domain} is served, but not package {missing} on the way to it",
            "the peer no longer serves it: ask its administrator for the fingerprint, then --rebootstrap",
        ),
        "bad_endpoint": Reason(
            "the endpoint {text} is not acceptable: {defect}", "write it as host or host:port, or [IPv6]:port"
        ),
    }


class ReferenceRefused(SvcError):
    """the federation reference cannot be used"""

    reason = "reference_refused"
    http_status = 400
    hint = "ask the peer's administrator for it again"
    reasons = {
        "bad_prefix": Reason(
            "the text is no federation reference: it does not begin with svcfed1:",
            "copy the whole line, from svcfed1: to the end",
        ),
        "unsupported_version": Reason(
            "the federation reference has the version {found}, and only {supported} is known", "use a newer svc"
        ),
        "bad_checksum": Reason(
            "the federation reference was damaged on its way: {defect}",
            "copy the whole line, from svcfed1: to the end",
        ),
        "bad_trust_domain": Reason(
            "the federation reference names no trust domain: {defect}", "ask the peer's administrator for it again"
        ),
        "bad_fingerprint": Reason(
            "the fingerprint is not readable: {defect}",
            "it has 52 letters and digits, SHA256: and base64, or 12 groups of 5 digits",
        ),
        "bad_endpoint": Reason(
            "the endpoint {text} of the federation reference is not acceptable: {defect}",
            "it is a host or host:port, or [IPv6]:port",
        ),
    }
