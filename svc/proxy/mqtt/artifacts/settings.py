"""The section ``artifacts`` of a listener: where the artifacts of its messages are published, and as whom."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from svc.naming import ARTIFACT_PREFIX
from svc.notary.artifact_topics import ArtifactPrefix
from svc.settings import Settings, text_format
from svc.wire.mqtt.primitives import MAX_TEXT, is_valid_text

#: Receipts that wait, unless the configuration says otherwise: as many as one commit of the notary can have by default
#: (`notary.queue`). One has at most 256 KiB, mostly 15.
DEFAULT_QUEUE: Final = 1024


def _prefix(value: str) -> str:
    return str(ArtifactPrefix.parse(value))


def _username(value: str) -> str:
    if not value or not is_valid_text(value) or len(value.encode("utf-8")) > MAX_TEXT:
        raise ValueError(f"a user name of MQTT: 1 to {MAX_TEXT} octets of UTF-8 without control characters")
    return value


PrefixText = Annotated[str, AfterValidator(_prefix), text_format("topic", "^[^#+]+$")]
UsernameText = Annotated[str, AfterValidator(_username)]


class ArtifactSettings(Settings):
    """What the proxy publishes on the upstream broker of an inbound listener."""

    prefix: PrefixText = ARTIFACT_PREFIX
    """The beginning of the topics: statements are retained at `<prefix>/workload/<id>`, receipts appear at
    `<prefix>/receipt/<id>`. Clients of the proxy cannot publish below it. `svc curl` gets it by
    `SVC_ARTIFACT_PREFIX`."""
    username: UsernameText | None = None
    """The user name of the proxy's own session with the broker."""
    passwordFile: str | None = None
    """A file with the password, read for each connection; a line end after it does not belong to it. It must have mode
    0600 at most, or belong to root and have mode 0640 at most. *Together*: with `username` only."""
    queue: int = Field(default=DEFAULT_QUEUE, ge=1, le=65536)
    """Receipts that may wait for the broker, mostly of 15 KiB; beyond it they are not published. All are in the notary
    database."""

    @model_validator(mode="after")
    def _password_of_a_user(self) -> Self:
        if self.passwordFile is not None and self.username is None:
            raise ValueError("username beside passwordFile")
        return self
