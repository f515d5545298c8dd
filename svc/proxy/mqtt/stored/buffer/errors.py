"""What can go wrong with the buffer while it is used; at its opening also a DatabaseError of its file."""

from __future__ import annotations

from svc.errors import Reason, SvcError
from svc.sqlite.errors import JournalError


class MessageBufferError(JournalError):
    """{database} {path} cannot be read: {detail}"""

    reasons = {
        "mqtt_buffer_key_missing": Reason(
            "{database} {path} is encrypted with the key {fingerprint}, which is not configured",
            "add the file of that key to mqttBuffer.keys; nothing was changed",
        ),
        "mqtt_buffer_in_clear": Reason(
            "{database} {path} has content in clear, which is not believed where mqttBuffer.keys is set",
            "where it is older than the keys, start once with mqttBuffer.encryptStored: true; nothing was changed",
        ),
        "mqtt_buffer_unreadable": Reason(
            "what {database} {path} has for {what} cannot be read: {detail}",
            "nothing of it is forwarded or removed; a restart checks the whole database",
        ),
    }


class BufferKeyRefused(SvcError):
    """the key of the buffer of MQTT messages in {path} is not used: {defect}"""

    reason = "mqtt_buffer_key_refused"
    hint = "a key is 32 random octets, or these in base64url, in a file with mode 0600 or 0400 of the own user"


class DeadLettersUnavailable(SvcError):
    """the buffer of MQTT messages {path} cannot be used: {detail}"""

    reason = "mqtt_buffer_inaccessible"
    hint = "run the command as the user of the proxy or as root, with the configuration of the proxy"
    reasons = {
        "mqtt_buffer_absent": Reason(
            "there is no buffer of MQTT messages at {path}",
            "give the configuration of a proxy that has a listener with ack: middleware, and has started with it",
        ),
        "mqtt_buffer_outdated": Reason(
            "the buffer of MQTT messages {path} is that of an older version", "start the proxy of this version with it"
        ),
    }
