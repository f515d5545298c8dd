"""
Reading the claims of a payload, each by its name and its type, and writing times.

A claim that is absent or of another type is ``malformed``, with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.ids import IdMalformed, NonceMalformed, parse_artifact_id, parse_nonce
from svc.errors import SvcError
from svc.identity import SpiffeID, TrustDomain
from svc.strictjson import JsonRefused, loads_object

#: The last second of the year 9999, the latest time that a calendar here can hold.
_LAST_SECOND: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Claims:
    """
    An object of the payload, and its path for errors.

    Every reader raises :class:`Malformed` where the claim is absent or of another type; absence counts as null where
    the name says so.
    """

    members: Mapping[str, object]
    where: str = "payload"

    @staticmethod
    def peek_time(payload: bytes, name: str) -> datetime | None:
        """
        Read a time of a payload that is not verified yet; None where it cannot be read, which verification refuses
        later.
        """
        try:
            return Claims(loads_object(payload)).time(name)
        except (JsonRefused, Malformed):
            return None

    @staticmethod
    def peek_text(payload: bytes, name: str) -> str:
        """Read a text of a payload that is not verified yet; ``-`` where it cannot be read."""
        try:
            return Claims(loads_object(payload)).text(name)
        except (JsonRefused, Malformed):
            return "-"

    @classmethod
    def of_version(cls, payload: bytes, version: int) -> Claims:
        """
        Read a payload as an object of the version that is known.

        Raises:
            EnvelopeError: for another version.
            Malformed: for JSON that is not strict, or a version that is no integer.
        """
        try:
            claims = cls(loads_object(payload))
        except JsonRefused as error:
            raise Malformed(where="payload", defect=error.defect) from error
        found = claims.integer("v")
        if found != version:
            raise EnvelopeError("unsupported_version", found=found, supported=version)
        return claims

    def text(self, name: str) -> str:
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self.mistyped(name, "a text")
        return value

    def text_or_null(self, name: str) -> str | None:
        return None if self.members.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """Read true or false."""
        value = self.members.get(name)
        if not isinstance(value, bool):
            raise self.mistyped(name, "true or false")
        return value

    def integer(self, name: str) -> int:
        """Read an integer that is not negative."""
        value = self.members.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.mistyped(name, "an integer of at least 0")
        return value

    def time(self, name: str) -> datetime:
        """Read a NumericDate as UTC (RFC 7519, section 2; integers only)."""
        value = self.integer(name)
        if value > _LAST_SECOND:
            raise self.mistyped(name, "a time before the year 10000")
        return datetime.fromtimestamp(value, UTC)

    def spiffe_id(self, name: str) -> SpiffeID:
        try:
            return SpiffeID.parse(self.text(name))
        except SvcError as error:
            raise self._parse_error(name, "a SPIFFE ID", error) from error

    def trust_domain(self, name: str) -> TrustDomain:
        try:
            return TrustDomain.parse(self.text(name))
        except SvcError as error:
            raise self._parse_error(name, "a trust domain", error) from error

    def digest(self, name: str) -> str:
        """Read a SHA-256 digest in canonical base64url, 43 characters."""
        try:
            return parse_artifact_id(self.members.get(name))
        except IdMalformed as error:
            raise self.mistyped(name, "the base64url of a SHA-256 digest") from error

    def nonce(self, name: str) -> str:
        """Read a ``jti`` or nonce, 22 characters."""
        try:
            return parse_nonce(self.members.get(name))
        except NonceMalformed as error:
            raise self.mistyped(name, "the base64url of 16 octets") from error

    def member(self, name: str) -> Claims:
        """Return a reader of the object in this claim."""
        value = self.members.get(name)
        if not isinstance(value, dict):
            raise self.mistyped(name, "an object")
        return Claims(value, f"{self.where}.{name}")

    def member_or_null(self, name: str) -> Claims | None:
        """Return a reader of the object in this claim, None for null; an absent claim is refused."""
        if name in self.members and self.members[name] is None:
            return None
        return self.member(name)

    def array(self, name: str) -> list[object]:
        value = self.members.get(name)
        if not isinstance(value, list):
            raise self.mistyped(name, "an array")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Read an array of texts."""
        items = self.array(name)
        texts = tuple(item for item in items if isinstance(item, str))
        if len(texts) != len(items):
            raise self.mistyped(name, "an array of texts")
        return texts

    def objects(self, name: str) -> tuple[Claims, ...]:
        """Return a reader for each object of an array."""
        items = self.array(name)
        found = tuple(
            Claims(item, f"{self.where}.{name}[{number}]")
            for number, item in enumerate(items)
            if isinstance(item, dict)
        )
        if len(found) != len(items):
            raise self.mistyped(name, "an array of objects")
        return found

    def text_map_or_null(self, name: str) -> Mapping[str, str] | None:
        return None if self.members.get(name) is None else self.text_map(name)

    def text_map(self, name: str) -> Mapping[str, str]:
        """Read an object whose values are texts."""
        members = self.member(name).members
        texts = {key: value for key, value in members.items() if isinstance(value, str)}
        if len(texts) != len(members):
            raise self.mistyped(name, "an object of texts")
        return texts

    def mistyped(self, name: str, expected: str) -> Malformed:
        """Build the error for a claim that is not what was expected."""
        found = "absent" if name not in self.members else _KINDS.get(type(self.members[name]), "of an unknown type")
        return Malformed(where=f"{self.where}.{name}", defect=f"expected {expected}, found {found}")

    def _parse_error(self, name: str, expected: str, error: SvcError) -> Malformed:
        return error if isinstance(error, Malformed) else self.mistyped(name, expected)


_KINDS: Final[dict[type, str]] = {
    str: "another text",
    bool: "true or false",
    int: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(moment: datetime) -> int:
    """Write an aware time as a NumericDate, rounded down."""
    since = moment - _EPOCH
    return since.days * 86_400 + since.seconds


def utc_seconds(moment: datetime) -> str:
    """Write an aware time for people and for claims (RFC 3339): ``2026-11-21T00:25:32Z``, fractions cut."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_micros(moment: datetime) -> str:
    """Write an aware time with six digits of the second: ``2026-11-21T00:25:32.101223Z``."""
    return f"{_second(seconds(moment))}.{moment.microsecond:06}Z"


@lru_cache(maxsize=8)
def _second(since: int) -> str:
    return (_EPOCH + timedelta(seconds=since)).isoformat().removesuffix("+00:00")
