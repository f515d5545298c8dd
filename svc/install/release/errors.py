"""Why a release, its signature or its package is refused."""

from __future__ import annotations

from svc.errors import Reason, SvcError

_AGAIN = "it was changed or damaged: get the package again, and compare its SHA-256 with that of the sender"
_KEYS = "give the vendor's public key with --release-key FILE or SVC_RELEASE_KEYS"


class ReleaseRefused(SvcError):
    """the release is refused"""

    reason = "release_refused"
    hint = "get the release from the vendor"
    reasons = {
        "release_too_large": Reason("{what} has {size} octets, at most {limit} are accepted", _AGAIN),
        "release_malformed": Reason("{where} of the release: {defect}", _AGAIN),
        "release_version_unknown": Reason(
            "the release has the format {found}, and this svc knows {supported}",
            "install it with the svc of the same release",
        ),
        "release_version_other": Reason(
            "the registry has the release {found} under the version {wanted}", "ask who keeps the registry"
        ),
        "release_platform_unknown": Reason(
            "the release has no platform '{platform}'", "it has {available}; name these in --platform"
        ),
        "release_signatures": Reason(
            "a release is signed with Ed25519 and ML-DSA-87, this one with {found}", "get the release from the vendor"
        ),
        "release_signature_invalid": Reason(
            "the signature of the release is not valid: {defect}", "do not install it; get it from the vendor"
        ),
        "release_signature_other": Reason(
            "the signature is valid, but for another release: it signs {found}, and this is {expected}",
            "do not install it; get the file and its signature together",
        ),
        "release_key_unknown": Reason(
            "the release is signed with the key {kid}, which is none of the {count} that are accepted", _KEYS
        ),
        "release_keys_missing": Reason(
            "no key that signs releases is built in, and neither --release-key nor SVC_RELEASE_KEYS is given",
            "give the file with the vendor's public key to one of them",
        ),
        "release_key_unreadable": Reason("{path} has no key that signs releases: {defect}", _KEYS),
        "release_key_of_tests": Reason(
            "{path} is the key of the test vendor, whose private key everybody has", "give the key of the vendor"
        ),
    }


class PackageRefused(SvcError):
    """the release package is refused"""

    reason = "package_refused"
    hint = _AGAIN
    reasons = {
        "package_unreadable": Reason("{path} cannot be read: {detail}", "check the path and its permissions"),
        "package_unwritable": Reason(
            "{path} cannot be written: {detail}", "is the folder there, is there space, and may you write into it?"
        ),
        "package_cut": Reason("the package ends within {entry}, after {size} octets", _AGAIN),
        "package_header": Reason(
            "the tar header of {entry} has {field} {found}, expected was {expected}",
            _AGAIN,
        ),
        "package_order": Reason("the entry {entry} is behind {before}, where it does not belong", _AGAIN),
        "package_padding": Reason("there are octets other than zero behind {entry}", _AGAIN),
        "package_trailing": Reason("there are {size} octets behind the end of the archive", _AGAIN),
        "package_entries": Reason("the package has more than {limit} entries", _AGAIN),
        "package_entry_missing": Reason("the entry {entry} is missing: {what}", _AGAIN),
        "package_entry_extra": Reason("the entry {entry} is not part of the release", _AGAIN),
        "package_entry_size": Reason("the entry {entry} has {size} octets, expected were {expected}", _AGAIN),
        "package_entry_digest": Reason("the entry {entry} has the digest {found}, expected was {expected}", _AGAIN),
        "package_entry_content": Reason("the entry {entry} is not as the release says: {defect}", _AGAIN),
    }
