"""
The stored keys of an authority: their format, and the checks that a file is complete and belongs to this trust domain.

A digest covers the whole document, and each key has to match its certificate. Every change is on disk before a new key
is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, mldsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from svc import strictjson
from svc.authority.jwtsvid import JwtKey
from svc.authority.keyfile import MAX_FILE, KeyFile, KeysRefused
from svc.authority.rotation import BACKDATE, KeyRing, Slot
from svc.authority.x509ca import Root
from svc.errors import SvcError
from svc.identity.spiffeid import TrustDomain
from svc.notary.pqissuer import PqIssuer

_VERSION: Final = 1
#: More than three keys of a kind are announced only if the clock was set repeatedly.
MAX_KEYS: Final = 16
_TIMES: Final = ("made", "activeFrom", "succeededAt", "expires")
Kind = Literal["x509", "jwt", "pq"]
_KINDS: Final[tuple[Kind, ...]] = ("x509", "jwt", "pq")
_KeyT = TypeVar("_KeyT")


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
                _slots(self._written["x509"], self._root),
                _slots(self._written["jwt"], _jwt_key),
                _slots(self._written["pq"], self._pq_issuer),
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
        certificate, key = _certified(record, self._trust_domain)
        return Root(certificate, key)

    def _pq_issuer(self, record: Mapping[str, str]) -> PqIssuer:
        certificate, key = _certified(record, self._trust_domain)
        if not isinstance(key, mldsa.MLDSA65PrivateKey | mldsa.MLDSA87PrivateKey):
            raise TypeError("a post-quantum root with another key")
        return PqIssuer(self._trust_domain, certificate, key)


def _digest(document: object) -> str:
    return hashlib.sha256(strictjson.dumps(document)).hexdigest()


def _record(slot: Slot[Any]) -> dict[str, str]:
    key = slot.key
    private = key.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    times = (slot.made, slot.active_from, slot.succeeded_at, slot.expires)
    record = {name: time.astimezone(UTC).isoformat() for name, time in zip(_TIMES, times, strict=True)}
    record["key"] = strictjson.b64u_encode(private)
    if isinstance(key, JwtKey):
        record["kid"] = key.kid
    else:
        record["certificate"] = strictjson.b64u_encode(key.certificate.public_bytes(Encoding.DER))
    return record


def _slots(records: list[dict[str, str]], read: Callable[[Mapping[str, str]], _KeyT]) -> tuple[Slot[_KeyT], ...]:
    if len(records) > MAX_KEYS:
        raise ValueError("too many keys")
    found = []
    for record in records:
        made, active_from, succeeded_at, expires = (_time(record[name]) for name in _TIMES)
        if not made <= active_from < expires or not made <= succeeded_at <= expires:
            raise ValueError("times out of order")
        found.append(Slot(read(record), made, active_from, succeeded_at, expires))
    return tuple(found)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.utcoffset() != timedelta():
        raise ValueError("a time that is not in UTC")
    return time


def _certified(record: Mapping[str, str], trust_domain: TrustDomain) -> tuple[x509.Certificate, Any]:
    certificate = x509.load_der_x509_certificate(strictjson.b64u_decode(record["certificate"]))
    key = load_der_private_key(strictjson.b64u_decode(record["key"]), password=None)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if names.get_values_for_type(x509.UniformResourceIdentifier) != [str(trust_domain.id)]:
        raise ValueError("a root of another trust domain")
    if certificate.public_key() != key.public_key():
        raise ValueError("a key that is not the certificate's")
    return certificate, key


def _jwt_key(record: Mapping[str, str]) -> JwtKey:
    key = load_der_private_key(strictjson.b64u_decode(record["key"]), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("a JWT key of another kind")
    return JwtKey(record["kid"], key)
