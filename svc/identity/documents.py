"""
What all JSON bundle files share: members of the right type, times, certificates in base64.

In all functions ``where`` is the location in the file, for error messages. Each raises ``BundleMalformed`` for a value
that is not of the expected form.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from svc.identity.bundle import BundleMalformed
from svc.identity.certificate import load_certificate
from svc.identity.errors import SvidMalformed
from svc.identity.spiffeid import TrustDomain, TrustDomainMalformed
from svc.strictjson import JsonRefused, loads_object

#: An archive of two thousand roots with ML-DSA keys stays below this.
MAX_BUNDLE_OCTETS: Final = 32 * 1024 * 1024
#: Enough for 32 MiB of certificates: the smallest root takes 450 octets and seven nodes.
MAX_BUNDLE_NODES: Final = 512 * 1024

_Value = TypeVar("_Value")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", re.ASCII)


def load_document(data: bytes) -> dict[str, object]:
    """Parse a bundle file, which is one JSON object."""
    try:
        return loads_object(data, max_bytes=MAX_BUNDLE_OCTETS, max_nodes=MAX_BUNDLE_NODES)
    except JsonRefused as error:
        raise BundleMalformed(defect=error.defect) from error


def require_version(document: Mapping[str, object], version: int) -> None:
    """Require the version of a file, its member ``v``."""
    found = document.get("v")
    if found is True or found != version:
        raise BundleMalformed(defect=f"version {found!r}, only {version} is understood")


def member(document: Mapping[str, object], name: str, kind: type[_Value], where: str) -> _Value:
    """Return a required member; ``kind`` is ``dict``, ``list``, ``str`` or ``int``."""
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BundleMalformed(defect=f"{where}{name} is {_type_name(value)}, expected {_type_name(kind())}")
    return value


def as_object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BundleMalformed(defect=f"{where} is {_type_name(value)}, expected an object")
    return value


def parse_trust_domain(name: str) -> TrustDomain:
    try:
        return TrustDomain.parse(name)
    except TrustDomainMalformed as error:
        raise BundleMalformed(defect=f"'{name}' is not a trust domain name ({error.defect})") from error


def certificate_from_base64(text: object, where: str) -> x509.Certificate:
    """Read one value of an ``x5c`` member (RFC 7517, section 4.7): padded standard base64 of DER."""
    if not isinstance(text, str):
        raise BundleMalformed(defect=f"{where}x5c holds {_type_name(text)}, expected text")
    try:
        return load_certificate(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, SvidMalformed) as error:
        raise BundleMalformed(defect=f"{where}x5c holds no certificate") from error


def only_certificate(entry: Mapping[str, object], where: str) -> x509.Certificate:
    """Read the ``x5c`` member of an entry that must have exactly one value."""
    chain = member(entry, "x5c", list, where)
    if len(chain) != 1:
        raise BundleMalformed(defect=f"{where}x5c has {len(chain)} values, expected exactly one")
    return certificate_from_base64(chain[0], where)


def certificate_to_base64(certificate: x509.Certificate) -> str:
    return base64.b64encode(certificate.public_bytes(Encoding.DER)).decode("ascii")


def read_time(document: Mapping[str, object], name: str, where: str) -> datetime | None:
    """Read an optional time, RFC 3339 in UTC with whole seconds; None when the member is absent or null."""
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str) and _TIME.match(value):
        try:
            return datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise BundleMalformed(defect=f"{where}{name} is no instant") from error
    raise BundleMalformed(defect=f"{where}{name} is no instant such as 2026-11-21T02:05:31Z")


def format_time(time: datetime) -> str:
    return time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def round_to_second(time: datetime, *, up: bool) -> datetime:
    """Round down, or up, to a whole second: the file has no fractions, and a window must not change by storing it."""
    floor = time.astimezone(UTC).replace(microsecond=0)
    return floor + timedelta(seconds=1) if up and floor != time else floor


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "text", int: "a number", bool: "true or false"}
    return "absent" if value is None else names.get(type(value), "something else")
