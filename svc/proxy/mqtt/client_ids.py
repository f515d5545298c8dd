"""Templates of the client identifiers that an identity may use, such as ``{serviceAccount}-*``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from svc.identity import SpiffeID
from svc.policy.attributes import Attributes
from svc.wildcards import fits

#: What stands in place of each placeholder.
PLACEHOLDERS: Final = ("namespace", "serviceAccount", "trustDomain", "name")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class ClientIdTemplate:
    """Text with placeholders; ``*`` stands for any characters."""

    text: str

    @classmethod
    def parse(cls, text: str) -> ClientIdTemplate:
        """Read a template; raises ValueError."""
        left = _PLACEHOLDER.sub("", text)
        if not text or "{" in left or "}" in left or not set(_PLACEHOLDER.findall(text)) <= set(PLACEHOLDERS):
            names = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise ValueError(
                f"a client identifier, in which {names} stand for the client's identity, and * for anything"
            )
        return cls(text)

    def admits(self, client_id: str, identity: SpiffeID, attributes: Attributes) -> bool:
        """Whether an identity may use an identifier; not where a placeholder of it has no value."""
        values = {
            "namespace": attributes.namespace,
            "serviceAccount": attributes.service_account,
            "trustDomain": identity.trust_domain.name,
            "name": identity.path.rpartition("/")[2] or None,
        }
        if any(values[name] is None for name in _PLACEHOLDER.findall(self.text)):
            return False
        # Split first: a value may hold no wildcard.
        pieces = [_PLACEHOLDER.sub(lambda found: str(values[found[1]]), piece) for piece in self.text.split("*")]
        return fits(pieces, client_id)
