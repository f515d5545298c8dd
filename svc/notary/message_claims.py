"""What messages of HTTP and of MQTT have in common in a receipt: values, or digests that replace them, and bodies."""

from __future__ import annotations

from dataclasses import dataclass

from svc.envelope.claims import Claims
from svc.notary.exchange import BodySummary
from svc.notary.receipt import redacted_digest
from svc.strictjson import b64u_decode


@dataclass(frozen=True, slots=True)
class ClaimedValue:
    """A value of the payload: a text, or the digest that replaces it."""

    text: str | None
    digest: str | None

    def matches(self, value: str, salt: str | None) -> bool:
        """
        Compare with the value that was observed, one character U+0000-00FF for each octet.

        Without the disclosed salt a redacted value matches nothing.
        """
        if self.digest is None:
            return self.text == value
        return salt is not None and redacted_digest(b64u_decode(salt), value) == self.digest


def read_body(body: Claims) -> BodySummary:
    """Read size and digest of a body."""
    return BodySummary(body.integer("size"), b64u_decode(body.digest("sha-256")), body.flag("complete"))


def read_value(value: object, claims: Claims, name: str) -> ClaimedValue:
    """Read a text or the digest that replaces it; ``name`` is where it is, for errors."""
    if isinstance(value, str):
        return ClaimedValue(value, None)
    if not isinstance(value, dict) or value.get("redacted") != "sha-256":
        raise claims.mistyped(name, "a text, or a digest instead")
    return ClaimedValue(None, Claims(value, f"{claims.where}.{name}").digest("digest"))
