"""From the configuration of a TCP listener to the listener."""

from __future__ import annotations

from svc.proxy.assembly.shared import ContextParts, ProxyParts, relayed_parts
from svc.proxy.config import ListenerSettings
from svc.proxy.listener import Listener
from svc.proxy.observers import ListenerObserver
from svc.proxy.relayed_context import RelayedContext
from svc.proxy.tcp.connection import TcpConnection


def tcp_listener(
    parts: ProxyParts, settings: ListenerSettings, observer: ListenerObserver, shared: ContextParts
) -> Listener:
    """Build a listener; nothing starts yet."""
    context = RelayedContext(**relayed_parts(parts, settings, observer, shared))
    endpoint = parts.endpoints.server(settings, observer)
    return Listener(context, endpoint, lambda connections: TcpConnection(context, connections))
