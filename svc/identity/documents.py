"""
The pieces that all bundle files share: members of the right type, instants, certificates in base64.

Owns how a defect in such a file is named. Knows nothing of what a file as a whole means.
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

_Value = TypeVar("_Value")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", re.ASCII)


def load_document(data: bytes) -> dict[str, object]:
    """
    Read a bundle file as one JSON object.

    Args:
        data: the content of the file.

    Returns:
        The object.

    Raises:
        BundleMalformed: when it is anything else.
    """
    try:
        return loads_object(data, max_bytes=MAX_BUNDLE_OCTETS)
    except JsonRefused as error:
        raise BundleMalformed(defect=error.defect) from error


def require_version(document: Mapping[str, object], version: int) -> None:
    """
    Demand the major version of a file.

    Args:
        document: the whole file.
        version: the only one that is understood.

    Raises:
        BundleMalformed: when ``v`` is anything else.
    """
    found = document.get("v")
    if found is True or found != version:
        raise BundleMalformed(defect=f"version {found!r}, only {version} is understood")


def member(document: Mapping[str, object], name: str, kind: type[_Value], where: str) -> _Value:
    """
    Take a member that must be there.

    Args:
        document: an object of the file.
        name: of the member.
        kind: ``dict``, ``list``, ``str`` or ``int``.
        where: how to name the place in an error.

    Returns:
        The value.

    Raises:
        BundleMalformed: when it is absent or of another type.
    """
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BundleMalformed(defect=f"{where}{name} is {_type_name(value)}, expected {_type_name(kind())}")
    return value


def as_object(value: object, where: str) -> dict[str, object]:
    """
    Demand an object.

    Args:
        value: what stands there.
        where: how to name the place in an error.

    Returns:
        The object.

    Raises:
        BundleMalformed: when it is of another type.
    """
    if not isinstance(value, dict):
        raise BundleMalformed(defect=f"{where} is {_type_name(value)}, expected an object")
    return value


def trust_domain_named(name: str) -> TrustDomain:
    """
    Read the name of a trust domain out of a file.

    Args:
        name: the name.

    Returns:
        The trust domain.

    Raises:
        BundleMalformed: when it is not a trust domain name.
    """
    try:
        return TrustDomain.parse(name)
    except TrustDomainMalformed as error:
        raise BundleMalformed(defect=f"'{name}' is not a trust domain name ({error.defect})") from error


def certificate_from_base64(text: object, where: str) -> x509.Certificate:
    """
    Read one value of an ``x5c`` member (RFC 7517, section 4.7): padded standard base64 of DER.

    Args:
        text: the value.
        where: how to name the place in an error.

    Returns:
        The certificate.

    Raises:
        BundleMalformed: when it is anything else.
    """
    if not isinstance(text, str):
        raise BundleMalformed(defect=f"{where}x5c holds {_type_name(text)}, expected text")
    try:
        return load_certificate(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, SvidMalformed) as error:
        raise BundleMalformed(defect=f"{where}x5c holds no certificate") from error


def certificate_to_base64(certificate: x509.Certificate) -> str:
    """
    Write one value of an ``x5c`` member.

    Args:
        certificate: any certificate.

    Returns:
        Padded standard base64 of its DER form.
    """
    return base64.b64encode(certificate.public_bytes(Encoding.DER)).decode("ascii")


def instant_from(document: Mapping[str, object], name: str, where: str) -> datetime | None:
    """
    Take an optional instant, RFC 3339 in UTC with whole seconds.

    Args:
        document: an object of the file.
        name: of the member.
        where: how to name the place in an error.

    Returns:
        An aware time, or None when the member is absent or null.

    Raises:
        BundleMalformed: when it is anything else.
    """
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str) and _INSTANT.match(value):
        try:
            return datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise BundleMalformed(defect=f"{where}{name} is no instant") from error
    raise BundleMalformed(defect=f"{where}{name} is no instant such as 2026-11-21T02:05:31Z")


def instant_to(instant: datetime) -> str:
    """
    Write an instant, RFC 3339 in UTC, cut to whole seconds.

    Args:
        instant: an aware time.

    Returns:
        The text.
    """
    return instant.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def whole_second(instant: datetime, *, up: bool) -> datetime:
    """
    Round to a whole second, so that a window survives being written and read.

    Args:
        instant: an aware time.
        up: to the next second instead of the one before.

    Returns:
        The rounded time.
    """
    floor = instant.astimezone(UTC).replace(microsecond=0)
    return floor + timedelta(seconds=1) if up and floor != instant else floor


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "text", int: "a number", bool: "true or false"}
    return "absent" if value is None else names.get(type(value), "something else")
