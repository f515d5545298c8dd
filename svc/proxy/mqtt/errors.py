"""Why the proxy ends an MQTT session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from svc.errors import Reason
from svc.policy.engine import Denied
from svc.proxy.errors import ProxyError


class ClientIdRefused(Denied):
    """{identity} must not use this client identifier: {rule} ({policy})"""

    hint = "use an identifier that one of the listener's `clientIDs` admits, or admit it there"


class SessionNotStored(ProxyError):
    """the session of an MQTT client cannot be stored"""

    http_status = 503
    reasons: ClassVar[Mapping[str, Reason]] = {
        "mqtt_sessions_full": Reason(
            "{taken} of {limit} sessions of the buffer of MQTT messages are taken: {held} by this identity, and most,"
            " {most_held}, by {most}",
            hint="near the limit an identity with more than twice as many as are free gets no more: look for clients"
            " that use many identifiers, or raise mqttBuffer.sessions",
        ),
        "mqtt_buffer_refuses": Reason(
            "the buffer of MQTT messages takes nothing new at present",
            hint="svc.proxy.buffer.refuses in the log says why",
        ),
        "mqtt_authentication_refused": Reason(
            "the client wants to authenticate by packets (AUTH), which is not possible with ack: middleware",
            hint="let it send user name and password, or use ack: upstream",
        ),
    }


class UpstreamSessionEnded(ProxyError):
    """{upstream} ended the session"""

    reasons: ClassVar[Mapping[str, Reason]] = {
        "upstream_refused": Reason(
            "{upstream} refused the session: {what}",
            hint="the broker gave the reason: see its configuration, and the user name and password of the client",
        ),
        "upstream_lost": Reason(
            "{upstream} closed the connection of a session",
            hint="look at the log of the upstream; its client connects again and repeats what was not acknowledged",
        ),
    }
