"""The part of a listener's configuration that its connections read: limits, time limits, rotation, and their peers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from svc.policyfiles.document import SourceDocument, WorkloadID
from svc.process.values import Wait
from svc.settings import Items, Settings, Size
from svc.wire.mqtt import DEFAULT_MAX_PACKET

OnRotation = Literal["keep", "drain", "reauth"]
MIN_HEAD = 1024


class LimitSettings(Settings):
    """Limits for the connections and messages of one listener."""

    connections: int = Field(default=4096, ge=1, le=1_000_000)
    """Open connections of clients. When all are taken, each new one closes one that was never permitted a request, else
    one that has sent nothing or whose handshake has stalled, else an idle one of the identity that holds most, always
    the longest idle; if all are in use the new one is closed. With `protocol: tcp` inbound it counts authorized
    connections: the identity that holds most loses its longest idle one to an identity that holds at least two fewer,
    otherwise the new one is closed. With `protocol: mqtt` inbound so, too, from CONNECT on; before it a connection is
    one that was never permitted a request."""
    handshakes: int = Field(default=256, ge=1, le=65536)
    """TLS handshakes at the same time, each from the first octet of its client on."""
    waiting: int = Field(default=1024, ge=1, le=65536)
    """Connections whose clients have sent nothing yet. When so many wait, the one that waits longest is closed, of the
    address that holds most."""
    head: Annotated[Size, Field(ge=MIN_HEAD, le=2**20)] = 32 * 1024
    """Start line, headers and trailers of a message of HTTP; topic and properties of a recorded message of MQTT, beyond
    it `record_too_large`. *Together*: with `protocol: mqtt` inbound only; unless `maxNotarization` is `none` or
    `workload`, the largest receipt of a request and a response, or of a message, must fit 256KiB, of which 44KiB are
    for signatures and batch; the error names the largest value."""
    fields: int = Field(default=100, ge=8, le=1000)
    """Header and trailer fields of a message. *Together*: as `head`, since digests of redacted fields are longer."""
    body: Size | None = None
    """The body of a request; beyond it 413."""
    idleUpstream: int = Field(default=64, ge=0, le=65536)
    """Idle connections kept to the upstream."""
    packet: Annotated[Size, Field(ge=1024, le=2**28)] = DEFAULT_MAX_PACKET
    """A packet of MQTT in either direction, told to both sides as their Maximum Packet Size; beyond it 0x95. At most
    128KiB of it are accepted for CONNECT. *Together*: `protocol: mqtt` only."""
    clientID: int = Field(default=256, ge=1, le=65535)
    """Octets of a client identifier; beyond it 0x85. *Together*: `protocol: mqtt` only."""
    subscriptions: int = Field(default=1000, ge=1, le=100_000)
    """Topic filters of one SUBSCRIBE, and those that a client is subscribed to on one connection; beyond it 0x97.
    *Together*: `protocol: mqtt` only."""


class TimeoutSettings(Settings):
    """Time limits of one listener."""

    handshake: Wait = 10.0
    """A complete TLS handshake, and the PROXY header before it; with `protocol: mqtt` CONNECT after it, too."""
    header: Wait = 10.0
    """The rest of a request head that has begun; then 408."""
    idle: Wait = 60.0
    """The next request on a connection; then it is closed. With `protocol: tcp` the next octet of either side, and 1h
    unless this is set; with `protocol: mqtt` so, too, of a client without keep alive, others send something within 1.5
    times their keep alive."""
    idleUpstream: Wait = 30.0
    """The next use of an idle upstream connection."""
    connect: Wait = 5.0
    """A connection to the upstream; then 504 `upstream_timeout`, with `protocol: tcp` the client is dropped, with
    `protocol: mqtt` it gets 0x88, also where CONNACK does not follow in this time."""
    lifetime: Wait | None = None
    """A whole connection. *Together*: `protocol: tcp` and `mqtt` only."""
    response: Wait = 60.0
    """The head of the response after the whole request; then 504."""
    stream: Wait = 300.0
    """The next octet while a body streams; then 408, 504 or a broken response, by the side that stalls."""
    exchange: Wait = 3600.0
    """A whole exchange, or the next octet after an upgrade."""


class PeerStatementSettings(Settings):
    """What the statement of a peer must say, which is issued centrally: its own word proves nothing."""

    issuers: Items[WorkloadID] = ()
    """SPIFFE IDs of central issuers whose statements are accepted; by default the manager of the peer's trust domain,
    `spiffe://<trust domain>/svc/manager`."""
    conditions: Annotated[Items[SourceDocument], Field(max_length=64)] = ()
    """Entries as in `from` of a [policy](policy.md#policies), of which one must hold, read from the statement:
    `namespaces` and `serviceAccounts` of its pod; `levels`, `compartments`, `sameCompartment` and `dominates` by the
    annotations `mls.svc.internal/level` and `mls.svc.internal/compartment`, compared with what `policy.attributes` and
    `policy.templates` say of the own workload."""
