"""
Reading the claims of a payload: each by its name and its type.

Owns how a claim of the wrong type is refused (``malformed`` with the place) and how times are written. Knows nothing
of what a claim means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from svc.errors import SvcError
from svc.identity import SpiffeID, TrustDomain
from svc.notary.errors import Malformed
from svc.notary.ids import IdMalformed, NonceMalformed, parse_artifact_id, parse_nonce
from svc.strictjson import JsonRefused, loads_object

#: The last second of the year 9999, the latest time that a calendar here can hold.
_LAST_SECOND: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Claims:
    """
    An object of the payload and the place where it stands.

    Attributes:
        members: the object.
        where: its path, for errors; empty for the payload itself.
    """

    members: Mapping[str, object]
    where: str = "payload"

    @staticmethod
    def peek_time(payload: bytes, name: str) -> datetime | None:
        """
        Look at a time of a payload that is not verified yet.

        Args:
            payload: the octets.
            name: the claim.

        Returns:
            The time, or None where the payload has no such claim; refusing it is left to the verification.
        """
        try:
            return Claims(loads_object(payload)).time(name)
        except (JsonRefused, Malformed):
            return None

    @staticmethod
    def peek_text(payload: bytes, name: str) -> str:
        """
        Look at a text of a payload that is not verified yet.

        Args:
            payload: the octets.
            name: the claim.

        Returns:
            The text, ``-`` where the payload has no such claim.
        """
        try:
            return Claims(loads_object(payload)).text(name)
        except (JsonRefused, Malformed):
            return "-"

    def text(self, name: str) -> str:
        """
        Read a text.

        Args:
            name: the claim.

        Returns:
            Its value.

        Raises:
            Malformed: where it is absent or of another type; so for all readers of this class.
        """
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self.refused(name, "a text")
        return value

    def text_or_null(self, name: str) -> str | None:
        """
        Read a text or null; an absent claim counts as null.

        Args:
            name: the claim.

        Returns:
            Its value.
        """
        return None if self.members.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """
        Read true or false.

        Args:
            name: the claim.

        Returns:
            Its value.
        """
        value = self.members.get(name)
        if not isinstance(value, bool):
            raise self.refused(name, "true or false")
        return value

    def integer(self, name: str) -> int:
        """
        Read an integer that is not negative.

        Args:
            name: the claim.

        Returns:
            Its value.
        """
        value = self.members.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refused(name, "an integer of at least 0")
        return value

    def time(self, name: str) -> datetime:
        """
        Read a NumericDate (RFC 7519, section 2; integers only).

        Args:
            name: the claim.

        Returns:
            An aware time in UTC.
        """
        value = self.integer(name)
        if value > _LAST_SECOND:
            raise self.refused(name, "a time before the year 10000")
        return datetime.fromtimestamp(value, UTC)

    def spiffe_id(self, name: str) -> SpiffeID:
        """
        Read a SPIFFE ID.

        Args:
            name: the claim.

        Returns:
            Its value.
        """
        try:
            return SpiffeID.parse(self.text(name))
        except SvcError as error:
            raise self._refined(name, "a SPIFFE ID", error) from error

    def trust_domain(self, name: str) -> TrustDomain:
        """
        Read the name of a trust domain.

        Args:
            name: the claim.

        Returns:
            Its value.
        """
        try:
            return TrustDomain.parse(self.text(name))
        except SvcError as error:
            raise self._refined(name, "a trust domain", error) from error

    def digest(self, name: str) -> str:
        """
        Read a SHA-256 digest in canonical base64url.

        Args:
            name: the claim.

        Returns:
            The same 43 characters.
        """
        try:
            return parse_artifact_id(self.members.get(name))
        except IdMalformed as error:
            raise self.refused(name, "the base64url of a SHA-256 digest") from error

    def nonce(self, name: str) -> str:
        """
        Read a ``jti`` or nonce.

        Args:
            name: the claim.

        Returns:
            The same 22 characters.
        """
        try:
            return parse_nonce(self.members.get(name))
        except NonceMalformed as error:
            raise self.refused(name, "the base64url of 16 octets") from error

    def member(self, name: str) -> Claims:
        """
        Step into an object.

        Args:
            name: the claim.

        Returns:
            Its reader.
        """
        value = self.members.get(name)
        if not isinstance(value, dict):
            raise self.refused(name, "an object")
        return Claims(value, f"{self.where}.{name}")

    def member_or_null(self, name: str) -> Claims | None:
        """
        Step into an object that may be null.

        Args:
            name: the claim.

        Returns:
            Its reader, or None.
        """
        if name in self.members and self.members[name] is None:
            return None
        return self.member(name)

    def array(self, name: str) -> list[object]:
        """
        Read an array.

        Args:
            name: the claim.

        Returns:
            Its items.
        """
        value = self.members.get(name)
        if not isinstance(value, list):
            raise self.refused(name, "an array")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """
        Read an array of texts.

        Args:
            name: the claim.

        Returns:
            Its items.
        """
        items = self.array(name)
        texts = tuple(item for item in items if isinstance(item, str))
        if len(texts) != len(items):
            raise self.refused(name, "an array of texts")
        return texts

    def objects(self, name: str) -> tuple[Claims, ...]:
        """
        Read an array of objects.

        Args:
            name: the claim.

        Returns:
            A reader for each.
        """
        items = self.array(name)
        found = tuple(
            Claims(item, f"{self.where}.{name}[{number}]")
            for number, item in enumerate(items)
            if isinstance(item, dict)
        )
        if len(found) != len(items):
            raise self.refused(name, "an array of objects")
        return found

    def text_map_or_null(self, name: str) -> Mapping[str, str] | None:
        """
        Read an object whose values are texts, or null.

        Args:
            name: the claim.

        Returns:
            Its members.
        """
        return None if self.members.get(name) is None else self.text_map(name)

    def text_map(self, name: str) -> Mapping[str, str]:
        """
        Read an object whose values are texts.

        Args:
            name: the claim.

        Returns:
            Its members.
        """
        members = self.member(name).members
        texts = {key: value for key, value in members.items() if isinstance(value, str)}
        if len(texts) != len(members):
            raise self.refused(name, "an object of texts")
        return texts

    def refused(self, name: str, expected: str) -> Malformed:
        """
        Build the error for one claim.

        Args:
            name: the claim.
            expected: what should stand there.

        Returns:
            The error, to be raised.
        """
        found = "absent" if name not in self.members else _KINDS.get(type(self.members[name]), "of an unknown type")
        return Malformed(where=f"{self.where}.{name}", defect=f"expected {expected}, found {found}")

    def _refined(self, name: str, expected: str, error: SvcError) -> Malformed:
        return error if isinstance(error, Malformed) else self.refused(name, expected)


_KINDS: Final[dict[type, str]] = {
    str: "another text",
    bool: "true or false",
    int: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def seconds(moment: datetime) -> int:
    """
    Write a time as a NumericDate.

    Args:
        moment: an aware time.

    Returns:
        Whole seconds since the epoch, rounded down.
    """
    return int(moment.replace(microsecond=0).timestamp())


def utc_seconds(moment: datetime) -> str:
    """
    Write a time for people and for claims (RFC 3339).

    Args:
        moment: an aware time.

    Returns:
        For example ``2026-11-21T00:25:32Z``; fractions are cut.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_micros(moment: datetime) -> str:
    """
    Write a time with six digits of the second.

    Args:
        moment: an aware time.

    Returns:
        For example ``2026-11-21T00:25:32.101223Z``.
    """
    return f"{moment.astimezone(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"
