"""What the commands with a license file have in common."""

from __future__ import annotations

from typing import Final

from svc.cli.errors import CommandFailed
from svc.cli.output import Console
from svc.envelope.errors import EnvelopeError, Malformed
from svc.license.verification import VerifiedLicense

_MAYBE_DAMAGED: Final = "or a part of the text is missing: ask the vendor to send the license again, as an attachment"


def refusal(error: EnvelopeError) -> CommandFailed:
    """Return what ends the command for a license that is refused."""
    return CommandFailed(error, remarks=(_MAYBE_DAMAGED,) if isinstance(error, Malformed) else ())


def warn_of_test_vendor(verified: VerifiedLicense, console: Console) -> None:
    """Say who accepts a license of the test vendor."""
    if verified.key.test:
        console.warn("the license is signed by the test vendor: only svc run from a checkout of its source accepts it")
