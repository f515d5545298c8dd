"""
The stored keys of an authority: their format, and the checks that a file is complete and belongs to this trust domain.

A digest covers the whole document, and each key has to match its certificate. Every change is on disk before a new key
is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
)

from svc import strictjson
from svc.authority.jwtsvid import JwtKey
from svc.authority.keyfile import MAX_FILE, KeyFile, KeysNotStored, KeysRefused
from svc.authority.x509ca import Root
from svc.errors import SvcError
from svc.identity.spiffeid import TrustDomain
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.keydocument import KINDS, KeyDocumentInvalid, Kind, read_keys, serialize_keys
from svc.pqissuer.keyrecords import certified_record, read_certified, read_pq_root, slot_record, slots_of
from svc.pqissuer.rotation import BACKDATE, KeyRing, Slot
from svc.workload.files import FileMissing, FileRefused, read_secret


@dataclass(frozen=True)
class StoredKeys:
    """The keys that an earlier process stored; ``found`` is whether there was a file."""

    x509: tuple[Slot[Root], ...] = ()
    jwt: tuple[Slot[JwtKey], ...] = ()
    pq: tuple[Slot[PqIssuer], ...] = ()
    found: bool = False


class KeysReadOnly(KeysNotStored):
    """new keys are due, and {path} is not written here"""

    reason = "keys_read_only"
    hint = "put a file with further keys in its place, as the Secret that svc-manager writes"


class KeyStore:
    """Stores the keys of one trust domain in one folder."""

    def __init__(self, folder: str, trust_domain: TrustDomain) -> None:
        #: The folder of the keys.
        self.file = KeyFile(folder)
        self._trust_domain = trust_domain
        self._written: dict[str, list[dict[str, str]]] = {kind: [] for kind in KINDS}

    @property
    def path(self) -> str:
        """The file of the keys."""
        return self.file.path

    def open(self, now: datetime) -> StoredKeys:
        """
        Lock the folder and read the keys.

        Raises :class:`KeysRefused`, with ``keys_of_the_future`` if the clock is before all keys of a kind.
        """
        data = self.file.open()
        if data is None:
            return StoredKeys()
        try:
            written, found = _parsed(data, self._trust_domain, self.path, now)
        except BaseException:
            self.file.close()
            raise
        self._written = written
        return found

    def keep(self, kind: Kind, ring: KeyRing[Any], slots: tuple[Slot[Any], ...]) -> None:
        """Start a ring with stored keys, and store each of its changes from now on."""
        ring.resume(slots, lambda changed: self._write(kind, changed))

    def close(self) -> None:
        """Release the lock."""
        self.file.close()

    def _write(self, kind: Kind, slots: tuple[Slot[Any], ...]) -> None:
        written = {**self._written, kind: [_record(slot) for slot in slots]}
        self.file.replace(serialize_keys(self._trust_domain, written))
        self._written = written


class ReadOnlyKeys:
    """Keys in a file that somebody else writes, such as a Secret of Kubernetes; no new ones are made."""

    def __init__(self, path: str, trust_domain: TrustDomain) -> None:
        self.path = path
        self._trust_domain = trust_domain

    def open(self, now: datetime) -> StoredKeys:
        """
        Read the keys.

        Raises :class:`KeysRefused`, also where there is no file, or others can read it.
        """
        try:
            data = read_secret(self.path, max_bytes=MAX_FILE)
        except (FileMissing, FileRefused) as error:
            raise KeysRefused(path=self.path, defect=error.evidence.get("defect", "there is no such file")) from error
        return _parsed(data, self._trust_domain, self.path, now)[1]

    def keep(self, kind: Kind, ring: KeyRing[Any], slots: tuple[Slot[Any], ...]) -> None:
        """Start a ring with the keys, which refuses each change from now on."""
        if not slots:
            raise KeysRefused(path=self.path, defect=f"it has no keys of the kind {kind}")
        ring.resume(slots, self._refuse)

    def close(self) -> None:
        """Nothing is held."""

    def _refuse(self, _slots: tuple[Slot[Any], ...]) -> None:
        raise KeysReadOnly(path=self.path)


def serialized_keys(trust_domain: TrustDomain, slots: Mapping[Kind, tuple[Slot[Any], ...]]) -> bytes:
    """The content of a file with keys."""
    return serialize_keys(trust_domain, {kind: [_record(slot) for slot in slots.get(kind, ())] for kind in KINDS})


def _parsed(
    data: bytes, trust_domain: TrustDomain, path: str, now: datetime
) -> tuple[dict[str, list[dict[str, str]]], StoredKeys]:
    """The records of a file, and the keys."""
    try:
        records = dict(read_keys(data, trust_domain))
        found = StoredKeys(
            slots_of(records["x509"], lambda record: Root(*read_certified(record, trust_domain))),
            slots_of(records["jwt"], _jwt_key),
            slots_of(records["pq"], lambda record: read_pq_root(record, trust_domain)),
            found=True,
        )
    except KeyDocumentInvalid as error:
        raise KeysRefused(path=path, defect=error.defect) from error
    except (SvcError, KeyError, TypeError, ValueError) as error:
        # Without the parser's message, which may contain a part of a key.
        raise KeysRefused(path=path, defect=f"it is malformed ({type(error).__name__})") from None
    for slots in (found.x509, found.jwt, found.pq):
        _refuse_future(slots, now, path)
    return records, found


def _refuse_future(slots: Iterable[Slot[Any]], now: datetime, path: str) -> None:
    made = [slot.made for slot in slots]
    if made and min(made) - now > BACKDATE:
        raise KeysRefused("keys_of_the_future", path=path, made=min(made).isoformat(timespec="seconds"))


def _record(slot: Slot[Any]) -> dict[str, str]:
    key = slot.key
    return {**slot_record(slot), "kid": key.kid} if isinstance(key, JwtKey) else certified_record(slot)


def _jwt_key(record: Mapping[str, str]) -> JwtKey:
    key = load_der_private_key(strictjson.b64u_decode(record["key"]), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("a JWT key of another kind")
    return JwtKey(record["kid"], key)
