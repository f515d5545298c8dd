"""What goes wrong when keys are made or licenses are signed."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class SigningFailed(SvcError):
    """the license could not be signed"""

    reason = "signing_failed"
    reasons = {
        "file_unreadable": Reason("{path} cannot be read: {detail}", "check the path and its permissions"),
        "file_exists": Reason("{path} exists already", "nothing is ever replaced: choose another name"),
        "file_unwritable": Reason(
            "{path} cannot be written: {detail}", "is the folder there, and may you write into it?"
        ),
        "key_file_malformed": Reason(
            "{path} has no private keys of a vendor: {defect}", "give what new-key has written"
        ),
        "passphrase_unfit": Reason("{path} {what}", "give the passphrase with which the key was made, or none"),
        "passphrase_short": Reason(
            "the passphrase in {path} has {count} characters, at least {least} are expected",
            "write a longer one into the first line of the file",
        ),
        "issuer_unfit": Reason("{issuer} is no name of an issuer: {defect}", "give one line of printable characters"),
    }
