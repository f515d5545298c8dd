"""
The stored keys of an authority: their format, and the checks that a file is complete and belongs to this trust domain.

A digest covers the whole document, and each key has to match its certificate. Every change is on disk before a new key
is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
)

from svc import strictjson
from svc.authority.jwtsvid import JwtKey
from svc.authority.keyfile import MAX_FILE, KeyFile, KeysRefused
from svc.authority.x509ca import Root
from svc.errors import SvcError
from svc.identity.spiffeid import TrustDomain
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.keyrecords import certified_record, read_certified, read_pq_root, slot_record, slots_of
from svc.pqissuer.rotation import BACKDATE, KeyRing, Slot

_VERSION: Final = 1
Kind = Literal["x509", "jwt", "pq"]
_KINDS: Final[tuple[Kind, ...]] = ("x509", "jwt", "pq")


@dataclass(frozen=True)
class StoredKeys:
    """The keys that an earlier process stored; ``found`` is whether there was a file."""

    x509: tuple[Slot[Root], ...] = ()
    jwt: tuple[Slot[JwtKey], ...] = ()
    pq: tuple[Slot[PqIssuer], ...] = ()
    found: bool = False


class KeyStore:
    """Stores the keys of one trust domain in one folder."""

    def __init__(self, folder: str, trust_domain: TrustDomain) -> None:
        self._file = KeyFile(folder)
        self._trust_domain = trust_domain
        self._written: dict[str, list[dict[str, str]]] = {kind: [] for kind in _KINDS}

    @property
    def path(self) -> str:
        return self._file.path

    def open(self, now: datetime) -> StoredKeys:
        """
        Lock the folder and read the keys.

        Raises :class:`KeysRefused`, with ``keys_of_the_future`` if the clock is before all keys of a kind.
        """
        data = self._file.open()
        if data is None:
            return StoredKeys()
        try:
            found = self._parsed(data)
            for slots in (found.x509, found.jwt, found.pq):
                self._refuse_future(slots, now)
        except BaseException:
            self._file.close()
            raise
        return found

    def keep(self, kind: Kind, ring: KeyRing[Any], slots: tuple[Slot[Any], ...]) -> None:
        """Start a ring with stored keys, and store each of its changes from now on."""
        ring.resume(slots, lambda changed: self._write(kind, changed))

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def _write(self, kind: Kind, slots: tuple[Slot[Any], ...]) -> None:
        written = {**self._written, kind: [_record(slot) for slot in slots]}
        document = {"version": _VERSION, "trustDomain": str(self._trust_domain), "keys": written}
        self._file.replace(strictjson.dumps({"sha256": _digest(document), "document": document}))
        self._written = written

    def _parsed(self, data: bytes) -> StoredKeys:
        try:
            whole = strictjson.loads_object(data, max_bytes=MAX_FILE)
            document = whole["document"]
            if whole["sha256"] != _digest(document) or not isinstance(document, dict):
                raise KeysRefused(path=self.path, defect="it is damaged: its digest does not match")
            if document["version"] != _VERSION:
                raise KeysRefused(path=self.path, defect=f"it has version {document['version']!r}")
            if document["trustDomain"] != str(self._trust_domain):
                raise KeysRefused(path=self.path, defect="it has the keys of another trust domain")
            self._written = {kind: list(document["keys"][kind]) for kind in _KINDS}
            return StoredKeys(
                slots_of(self._written["x509"], self._root),
                slots_of(self._written["jwt"], _jwt_key),
                slots_of(self._written["pq"], lambda record: read_pq_root(record, self._trust_domain)),
                found=True,
            )
        except KeysRefused:
            raise
        except (SvcError, KeyError, TypeError, ValueError) as error:
            # Without the parser's message, which may contain a part of a key.
            raise KeysRefused(path=self.path, defect=f"it is malformed ({type(error).__name__})") from None

    def _refuse_future(self, slots: Iterable[Slot[Any]], now: datetime) -> None:
        made = [slot.made for slot in slots]
        if made and min(made) - now > BACKDATE:
            raise KeysRefused("keys_of_the_future", path=self.path, made=min(made).isoformat(timespec="seconds"))

    def _root(self, record: Mapping[str, str]) -> Root:
        certificate, key = read_certified(record, self._trust_domain)
        return Root(certificate, key)


def _digest(document: object) -> str:
    return hashlib.sha256(strictjson.dumps(document)).hexdigest()


def _record(slot: Slot[Any]) -> dict[str, str]:
    key = slot.key
    return {**slot_record(slot), "kid": key.kid} if isinstance(key, JwtKey) else certified_record(slot)


def _jwt_key(record: Mapping[str, str]) -> JwtKey:
    key = load_der_private_key(strictjson.b64u_decode(record["key"]), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("a JWT key of another kind")
    return JwtKey(record["kid"], key)
