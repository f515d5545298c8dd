"""The section ``mqttBuffer``: the buffer of all listeners with ``ack: middleware``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from svc.naming import DEFAULT_MQTT_BUFFER
from svc.proxy.mqtt.stored.buffer.limits import RESERVE_SIZE, BufferLimits
from svc.settings import Duration, Items, Settings, Size

_DEFAULTS = BufferLimits()


class BufferSettings(Settings):
    """Where messages are stored that clients were promised, and how many."""

    path: str = DEFAULT_MQTT_BUFFER
    """The database. Folder and file are made with modes 0700 and 0600 where they are absent."""
    keys: Annotated[Items[str], Field(max_length=16)] = ()
    """Files with keys, each of 32 random octets or these in base64url, mode 0600 or 0400: the first one encrypts what
    is stored, all decrypt. Without any, messages are stored in clear, and user names and passwords of clients not at
    all. With any, a database with content in clear is refused."""
    encryptStored: bool = False
    """Encrypt at the start what was stored before there were `keys`. *Remove it* after that start: whoever can write to
    the database could store messages before each one."""
    totalBytes: Annotated[Size, Field(ge=2**20, le=2**44)] = _DEFAULTS.octets
    """All messages; beyond it new ones are refused. Identities [share](security.md#shares) the last tenth, so that one
    with many gets no more of it."""
    sessions: int = Field(default=_DEFAULTS.sessions, ge=1, le=1_000_000)
    """Sessions of clients, connected or not; beyond it new ones are refused. The last tenth is shared as that of
    `totalBytes`."""
    sessionBytes: Annotated[Size, Field(ge=64 * 1024, le=2**44)] = _DEFAULTS.session_octets
    """The messages of one session. *Together*: at most `totalBytes`, at least `limits.packet` of each listener with
    `ack: middleware`."""
    sessionMessages: int = Field(default=_DEFAULTS.session_messages, ge=1, le=100_000_000)
    """How many these are."""
    sessionAge: Annotated[Duration, Field(ge=1.0, le=36500 * 86400.0)] = _DEFAULTS.session_age
    """How long the oldest message of a session may have waited while new ones are accepted, and how long one that the
    broker refuses for now holds back those behind it; then it is a dead letter. None is removed for its age alone."""
    deadLetters: int = Field(default=_DEFAULTS.dead_letters, ge=1, le=1_000_000)
    """Acknowledged messages that the broker will not accept and that are kept, see `svc mqtt dead-letters`. Beyond it
    such a message stays where it is, and holds back those of its session. The last tenth is shared as that of
    `totalBytes`, also of `deadLetterBytes`."""
    deadLetterBytes: Annotated[Size, Field(ge=64 * 1024, le=2**44)] = _DEFAULTS.dead_letter_octets
    """How many octets these are, beside `totalBytes`; one is kept whatever its size."""
    whenFull: Literal["refuse", "newest"] = "refuse"
    """What becomes of a message that is refused and whose client cannot be given a reason code (MQTT 3.1.1): `refuse`
    closes the client, which sends it again; `newest` drops it without an acknowledgement. MQTT 5.0 has 0x97."""
    reserve: Annotated[Size, Field(ge=0, le=2**30)] = RESERVE_SIZE
    """Kept back on the disk, so that what is stored can be forwarded when it is full."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.sessionBytes > self.totalBytes:
            raise ValueError("sessionBytes of at most totalBytes")
        return self

    @property
    def limits(self) -> BufferLimits:
        """The bounds as the buffer takes them."""
        return BufferLimits(
            octets=self.totalBytes,
            sessions=self.sessions,
            session_octets=self.sessionBytes,
            session_messages=self.sessionMessages,
            session_age=self.sessionAge,
            dead_letters=self.deadLetters,
            dead_letter_octets=self.deadLetterBytes,
        )
