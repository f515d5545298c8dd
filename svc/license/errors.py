"""Why a license is refused, beside the reasons of its envelope."""

from __future__ import annotations

from svc.envelope.errors import EnvelopeError
from svc.errors import Reason

_ASK_AGAIN = "ask the vendor to send the license again, as an attachment"


class LicenseRefused(EnvelopeError):
    """the license is refused"""

    reason = "license_refused"
    hint = "ask the vendor for a new license"
    reasons = {
        "license_too_large": Reason(
            "the file with the license has {size} octets, at most {limit} are accepted",
            "save the license alone, without the message around it",
        ),
        "license_not_found": Reason(
            "there is no line -----BEGIN SVC LICENSE----- in the file",
            "a license file is text: was the attachment saved, and is it the right file?",
        ),
        "license_cut": Reason(
            "the line -----END SVC LICENSE----- is missing: the end of the license was cut off", _ASK_AGAIN
        ),
        "license_several": Reason(
            "there are {count} licenses in the file, and one is expected", "save each license in a file of its own"
        ),
        "license_damaged": Reason("the text of the license was damaged on its way: {defect}", _ASK_AGAIN),
        "license_signatures": Reason(
            "a license is signed with Ed25519 and ML-DSA-87, this one with {found}", "ask the vendor for a new license"
        ),
        "license_key_unknown": Reason(
            "the license is signed with the key {kid}, which is none of the vendor's keys in this version of svc",
            "upgrade svc if the license is newer than it, or ask the vendor for a new license",
        ),
        "license_keys_none": Reason(
            "the license is signed with the key {kid}, and this svc was built without any key of a vendor",
            "install the svc that the vendor distributes, or build one with bin/release --vendor-key FILE",
        ),
        "license_key_of_tests": Reason(
            "the license is signed by the test vendor, whose private key everybody has",
            "only svc run from a checkout of its source accepts it; install a license of the vendor",
        ),
        "license_keys_mixed": Reason(
            "the two signatures of the license are by different keys of vendors, {first} and {second}",
            "the license was put together from two; do not trust it",
        ),
        "license_secret_other": Reason(
            "there is a Secret {namespace}/{name} already, and it is not as this license would be installed: {defect}",
            "look at it, and remove it with kubectl delete secret -n {namespace} {name} before you install again",
        ),
        "issuer_mismatch": Reason(
            "the license names the issuer {found}, but the key that signed it is of {expected}",
            "ask the vendor for a new license",
        ),
        "audience_mismatch": Reason(
            "the license is for the product {audience}, not for {expected}", "install a license for this product"
        ),
    }
