"""
Registration entries, and what has to change so that a server has those that are wanted.

Identifiers of entries begin with the name of the program that owns them, followed by a digest of what SPIRE does not
allow twice: SPIFFE ID, parent and selectors. So a creation that is repeated does not make a second entry, and those of
others are never touched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from svc.identity import SpiffeID
from svc.spire.errors import EntryMalformed
from svc.spire.messages import EntryMessage

#: The owner by default.
OWN: Final = "svc."
MAX_SELECTORS: Final = 64
MAX_NAMES: Final = 128
#: The longest life that can be asked for, in seconds: a server limits it further.
MAX_TTL: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RegistrationEntry:
    """
    Which workloads get an identity.

    Args:
        parent_id: of the agent, or of the node alias, whose workloads these are; that of the server for a node alias.
        selectors: as ``k8s:ns:pay``; all of them must match.
        x509_svid_ttl: seconds; 0 for the server's default, as of ``jwt_svid_ttl``.
        federates_with: names of trust domains whose bundles come with the SVID.
        admin: whether the identity may use the server's API.
        owner: with which the identifier begins; no owner's name is the beginning of another one's.
    """

    spiffe_id: SpiffeID
    parent_id: SpiffeID
    selectors: frozenset[str]
    x509_svid_ttl: int = 0
    jwt_svid_ttl: int = 0
    federates_with: frozenset[str] = frozenset()
    #: In their order: the first one is the common name of the certificate.
    dns_names: tuple[str, ...] = ()
    hint: str = ""
    admin: bool = False
    owner: str = OWN

    def __post_init__(self) -> None:
        defect = self._defect()
        if defect:
            raise EntryMalformed(spiffe_id=self.spiffe_id, defect=defect)

    def _defect(self) -> str:
        if not 0 < len(self.selectors) <= MAX_SELECTORS:
            return f"it has {len(self.selectors)} selectors; 1 to {MAX_SELECTORS} are expected"
        for each in self.selectors:
            kind, colon, value = each.partition(":")
            if not (kind and colon and value):
                return f"the selector {each!r} is not of the form type:value"
        if max(len(self.dns_names), len(self.federates_with)) > MAX_NAMES:
            return f"it has more than {MAX_NAMES} names"
        if self.spiffe_id.trust_domain != self.parent_id.trust_domain:
            return f"its parent {self.parent_id} is of another trust domain"
        if not (0 <= self.x509_svid_ttl <= MAX_TTL and 0 <= self.jwt_svid_ttl <= MAX_TTL):
            return f"a life is not between 0 and {MAX_TTL} seconds"
        return ""

    @property
    def id(self) -> str:
        """Its identifier at the server."""
        key = [str(self.spiffe_id), str(self.parent_id), sorted(self.selectors)]
        return self.owner + hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]

    def message(self) -> Any:
        """The entry as the server gets it."""
        selectors = (each.partition(":") for each in sorted(self.selectors))
        return EntryMessage(
            id=self.id,
            spiffe_id=_id_message(self.spiffe_id),
            parent_id=_id_message(self.parent_id),
            selectors=[{"type": kind, "value": value} for kind, _colon, value in selectors],
            x509_svid_ttl=self.x509_svid_ttl,
            jwt_svid_ttl=self.jwt_svid_ttl,
            federates_with=sorted(self.federates_with),
            dns_names=self.dns_names,
            hint=self.hint,
            admin=self.admin,
        )


@dataclass(frozen=True, slots=True)
class EntryChanges:
    """What to create, to update, and to delete by identifier, each in the order of identifiers."""

    create: tuple[RegistrationEntry, ...] = ()
    update: tuple[RegistrationEntry, ...] = ()
    delete: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.update or self.delete)


def changes(stored: Iterable[Any], wanted: Iterable[RegistrationEntry], *, owner: str = OWN) -> EntryChanges:
    """Compare the messages of stored entries with those that an owner wants; entries of others stay as they are."""
    left = {message.id: message for message in stored if message.id.startswith(owner)}
    create, update = [], []
    for entry in sorted({each.id: each for each in wanted}.values(), key=lambda each: each.id):
        message = left.pop(entry.id, None)
        if message is None:
            create.append(entry)
        elif _content(message) != _content(entry.message()):
            update.append(entry)
    return EntryChanges(tuple(create), tuple(update), tuple(sorted(left)))


def _content(message: Any) -> bytes:
    """A message with all that a server may store in another order in one order."""
    copy = type(message)()
    copy.CopyFrom(message)
    del copy.selectors[:], copy.federates_with[:]
    copy.selectors.extend(sorted(message.selectors, key=lambda each: (each.type, each.value)))
    # The API names trust domains with and without the scheme.
    copy.federates_with.extend(sorted(each.removeprefix("spiffe://") for each in message.federates_with))
    copy.DiscardUnknownFields()
    octets: bytes = copy.SerializeToString(deterministic=True)
    return octets


def _id_message(spiffe_id: SpiffeID) -> dict[str, str]:
    return {"trust_domain": str(spiffe_id.trust_domain), "path": spiffe_id.path}
