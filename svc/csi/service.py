"""The gRPC services of the driver, on the two Unix sockets that the kubelet connects to; needs the asyncio reactor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.csi.driver import NodeDriver, VolumeFailed, VolumeRefused, VolumeSourceMissing
from svc.csi.messages import (
    Empty,
    GetPluginInfoResponse,
    NodeGetInfoResponse,
    NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest,
    PluginInfo,
    RegistrationStatus,
)
from svc.errors import SvcError, printable

#: Versions of the CSI specification that the driver speaks.
_VERSIONS: Final = ("1.0.0",)
_STATUSES: Final = {VolumeFailed: Status.INTERNAL, VolumeSourceMissing: Status.UNAVAILABLE}


class RegistrationFailed(SvcError):
    """the CSI driver {driver} is not registered with the kubelet: {detail}"""

    reason = "csi_registration_failed"
    hint = "are the folders plugins and plugins_registry of this node's kubelet mounted?"


class CsiObserver:
    """Receives what the driver does; a base with empty methods."""

    def published(self, volume: str, attributes: Mapping[str, str]) -> None:
        """A volume is mounted."""

    def unpublished(self, volume: str) -> None:
        """A volume is not mounted any more."""

    def failed(self, error: SvcError) -> None:
        """A volume was refused or failed."""

    def registered(self, error: SvcError | None) -> None:
        """The kubelet uses the driver, or ``error`` says why it does not."""


class NodeService:
    """
    The services ``csi.v1.Identity`` and ``csi.v1.Node``.

    Args:
        name: of the driver.
        version: of the driver.
        node: the name of the node.
        driver: does the work.
        observer: is told what was done.
    """

    def __init__(self, name: str, version: str, node: str, driver: NodeDriver, observer: CsiObserver) -> None:
        self._name = name
        self._version = version
        self._node = node
        self._driver = driver
        self._observer = observer

    def __mapping__(self) -> dict[str, Handler]:
        """The methods, in the form of grpclib."""
        info = GetPluginInfoResponse(name=self._name, vendor_version=self._version)
        node = NodeGetInfoResponse(node_id=self._node)
        methods: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
            "/csi.v1.Identity/GetPluginInfo": (lambda _request: info, Empty, GetPluginInfoResponse),
            # Neither has a controller, nor a topology, nor staged volumes.
            "/csi.v1.Identity/GetPluginCapabilities": (lambda _request: Empty(), Empty, Empty),
            "/csi.v1.Identity/Probe": (lambda _request: Empty(), Empty, Empty),
            "/csi.v1.Node/NodeGetInfo": (lambda _request: node, Empty, NodeGetInfoResponse),
            "/csi.v1.Node/NodeGetCapabilities": (lambda _request: Empty(), Empty, Empty),
            "/csi.v1.Node/NodePublishVolume": (self._publish, NodePublishVolumeRequest, Empty),
            "/csi.v1.Node/NodeUnpublishVolume": (self._unpublish, NodeUnpublishVolumeRequest, Empty),
        }
        return {
            path: Handler(_handler(method), Cardinality.UNARY_UNARY, request, answer)
            for path, (method, request, answer) in methods.items()
        }

    def _publish(self, request: Any) -> Any:
        attributes = {each.key: each.value for each in request.volume_context}
        with self._reported():
            self._driver.publish(
                request.volume_id,
                request.target_path,
                read_only=request.readonly,
                block=request.volume_capability.HasField("block"),
                attributes=attributes,
            )
        self._observer.published(request.volume_id, attributes)
        return Empty()

    def _unpublish(self, request: Any) -> Any:
        with self._reported():
            self._driver.unpublish(request.volume_id, request.target_path)
        self._observer.unpublished(request.volume_id)
        return Empty()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn an error of the driver into a gRPC status, which the kubelet shows in an Event of the pod."""
        try:
            yield
        except VolumeRefused as error:
            self._observer.failed(error)
            status = _STATUSES.get(type(error), Status.INVALID_ARGUMENT)
            raise GRPCError(status, f"{error}; {error.hint}") from error


class RegistrationService:
    """
    The service ``pluginregistration.Registration``: the kubelet asks which driver a socket is about, and says whether
    it uses it.

    Args:
        name: of the driver.
        endpoint: its socket, as the kubelet sees it.
        observer: is told the result.
    """

    def __init__(self, name: str, endpoint: str, observer: CsiObserver) -> None:
        self._name = name
        self._info = PluginInfo(type="CSIPlugin", name=name, endpoint=endpoint, supported_versions=_VERSIONS)
        self._observer = observer

    def __mapping__(self) -> dict[str, Handler]:
        """The methods, in the form of grpclib."""
        prefix, unary = "/pluginregistration.Registration/", Cardinality.UNARY_UNARY
        return {
            f"{prefix}GetInfo": Handler(_handler(lambda _request: self._info), unary, Empty, PluginInfo),
            f"{prefix}NotifyRegistrationStatus": Handler(_handler(self._notified), unary, RegistrationStatus, Empty),
        }

    def _notified(self, status: Any) -> Any:
        error = None
        if not status.plugin_registered:
            error = RegistrationFailed(driver=self._name, detail=printable(status.error))
        self._observer.registered(error)
        return Empty()


class CsiService(Service):
    """
    Serves the driver and its registration; stopping leaves every mount as it is.

    Args:
        node: the services of the driver.
        registration: that of its registration.
        socket: of the driver; its folder is made where it is missing.
        registration_socket: in the folder in which the kubelet looks for drivers.
        observer: is told why the sockets could not be made.
    """

    def __init__(
        self,
        node: NodeService,
        registration: RegistrationService,
        socket: str,
        registration_socket: str,
        observer: CsiObserver,
    ) -> None:
        self._sockets = ((socket, node), (registration_socket, registration))
        self._name = os.path.basename(registration_socket)
        self._observer = observer
        self._servers: list[tuple[str, Server]] = []

    def startService(self) -> None:
        super().startService()
        opening: Deferred[None] = Deferred.fromFuture(asyncio.ensure_future(self._open()))
        opening.addErrback(self._not_opened)

    def stopService(self) -> Deferred[None]:
        """Close and remove the sockets, that of the registration first: the kubelet then asks no more."""
        super().stopService()
        return Deferred.fromFuture(asyncio.ensure_future(self._close()))

    async def _open(self) -> None:
        # The registration last: the kubelet calls the driver at once.
        for path, service in self._sockets:
            os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
            with suppress(FileNotFoundError):
                # Of an agent that was killed; the kubelet asks again when the file is a new one.
                os.unlink(path)
            server = Server([service])
            # The kernel makes the socket of root for root alone.
            former = os.umask(0o177)
            try:
                await server.start(path=path)
            finally:
                os.umask(former)
            self._servers.append((path, server))

    async def _close(self) -> None:
        servers, self._servers = self._servers, []
        for path, server in reversed(servers):
            with suppress(OSError):
                os.unlink(path)
            server.close()
        for _path, server in servers:
            await server.wait_closed()

    def _not_opened(self, failure: Failure) -> None:
        failure.trap(OSError)
        error: Any = failure.value
        detail = f"{error.filename or self._name}: {error.strerror or error}"
        self._observer.registered(RegistrationFailed(driver=self._name, detail=detail))


def _handler(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def handle(stream: Any) -> None:
        request = await stream.recv_message()
        if request is None:
            raise GRPCError(Status.INVALID_ARGUMENT, "the request has no message")
        await stream.send_message(method(request))

    return handle
