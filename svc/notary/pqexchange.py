"""
What workload and post-quantum issuer say to each other: a challenge, a request, an answer.

Owns the list of outstanding challenges and the JSON of ``POST /v1/pq-leaf``. Knows nothing of HTTP and of what is
issued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from svc.notary.envelope import MAX_ENVELOPE, Envelope
from svc.notary.errors import ChallengesExhausted, ChallengeUnknown, Malformed, TooLarge
from svc.notary.x5c import decode_x5c, encode_x5c, texts_of_x5c
from svc.strictjson import JsonRefused, b64u_encode, dumps, loads_object

#: How long a challenge may be answered.
CHALLENGE_TTL: Final = timedelta(seconds=60)
#: A workload asks once a rotation; 1,024 within a minute is a thousand workloads at once, in 100 kB.
MAX_CHALLENGES: Final = 1024


class Challenges:
    """
    The challenges that were given out and not yet used.

    Args:
        random: gives that many unpredictable octets.
        ttl: how long a challenge may be answered.
        limit: the most that may be outstanding.
    """

    def __init__(
        self,
        random: Callable[[int], bytes],
        *,
        ttl: timedelta = CHALLENGE_TTL,
        limit: int = MAX_CHALLENGES,
    ) -> None:
        self._random = random
        self._ttl = ttl
        self._limit = limit
        #: In the order of issue, which is the order of expiry.
        self._expiry: dict[str, datetime] = {}

    def __len__(self) -> int:
        return len(self._expiry)

    def issue(self, now: datetime) -> str:
        """
        Give out a challenge.

        Args:
            now: the time, aware.

        Returns:
            base64url of 32 octets.

        Raises:
            ChallengesExhausted: where ``limit`` are outstanding.
        """
        self._forget(now)
        if len(self._expiry) >= self._limit:
            raise ChallengesExhausted(limit=self._limit)
        challenge = b64u_encode(self._random(32))
        self._expiry[challenge] = now + self._ttl
        return challenge

    def consume(self, challenge: str, now: datetime) -> None:
        """
        Take a challenge out of the list; it counts once.

        Args:
            challenge: what a proof claims.
            now: the time, aware.

        Raises:
            ChallengeUnknown: where it was not issued, was consumed before, or is too old.
        """
        self._forget(now)
        expiry = self._expiry.pop(challenge, None)
        if expiry is None or not self._counts(expiry, now):
            raise ChallengeUnknown(seconds=int(self._ttl.total_seconds()))

    def _forget(self, now: datetime) -> None:
        while self._expiry:
            oldest = next(iter(self._expiry))
            if self._counts(self._expiry[oldest], now):
                return
            del self._expiry[oldest]

    def _counts(self, expiry: datetime, now: datetime) -> bool:
        """A clock that was set back does not prolong a challenge."""
        return now <= expiry <= now + self._ttl


@dataclass(frozen=True)
class PqLeafRequest:
    """
    The body of ``POST /v1/pq-leaf``.

    Attributes:
        chain: the SVID chain of the workload.
        proof: the proof of possession, not checked.
    """

    chain: tuple[x509.Certificate, ...]
    proof: Envelope

    @classmethod
    def parse(cls, data: bytes, *, max_bytes: int = MAX_ENVELOPE) -> PqLeafRequest:
        """
        Read a request.

        Args:
            data: the body.
            max_bytes: the largest accepted size.

        Returns:
            The request.

        Raises:
            TooLarge: beyond ``max_bytes``.
            Malformed: for anything but the two members.
        """
        members = _members(data, max_bytes)
        chain = decode_x5c(texts_of_x5c(members.get("x5c"), "x5c"), "x5c")
        proof = members.get("proof")
        if not isinstance(proof, dict):
            raise Malformed(where="proof", defect="not an object")
        return cls(chain, Envelope.from_object(proof))

    def serialize(self) -> bytes:
        """
        Write the request.

        Returns:
            The body.
        """
        return dumps({"x5c": list(encode_x5c(self.chain)), "proof": self.proof.to_object()})


@dataclass(frozen=True)
class PqLeafResponse:
    """
    The answer to ``POST /v1/pq-leaf``.

    Attributes:
        chain: the post-quantum leaf and its intermediates, without a root.
    """

    chain: tuple[x509.Certificate, ...]

    @classmethod
    def parse(cls, data: bytes, *, max_bytes: int = MAX_ENVELOPE) -> PqLeafResponse:
        """
        Read an answer.

        Args:
            data: the body.
            max_bytes: the largest accepted size.

        Returns:
            The answer.

        Raises:
            TooLarge: beyond ``max_bytes``.
            Malformed: for anything but a chain.
        """
        return cls(decode_x5c(texts_of_x5c(_members(data, max_bytes).get("x5c"), "x5c"), "x5c"))

    def serialize(self) -> bytes:
        """
        Write the answer.

        Returns:
            The body.
        """
        return dumps({"x5c": list(encode_x5c(self.chain))})


def _members(data: bytes, max_bytes: int) -> dict[str, object]:
    if len(data) > max_bytes:
        raise TooLarge(size=len(data), limit=max_bytes)
    try:
        return loads_object(data, max_bytes=max_bytes)
    except JsonRefused as error:
        raise Malformed(where="the document", defect=error.defect) from error
