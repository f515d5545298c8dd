"""What all connections of one MQTT listener share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from svc.proxy.mqtt.client_ids import ClientIdTemplate
from svc.proxy.tcp.context import TcpContext

if TYPE_CHECKING:
    from svc.proxy.mqtt.connection import MqttConnection
    from svc.proxy.mqtt.interfaces import MqttSession


@dataclass(slots=True, kw_only=True)
class MqttContext(TcpContext):
    """As a TCP listener: each client has one connection to the upstream."""

    #: Makes the session of a connection.
    session: Callable[[MqttConnection], MqttSession]
    #: What client identifiers must match one of; empty for any.
    client_ids: tuple[ClientIdTemplate, ...] = ()
