"""
The client of one API server, on the asynchronous dynamic client of the package ``kubernetes``.

Owns paths, time limits and what an answer means. Nothing is discovered: the caller names kinds, so that no list of
kinds is fetched, or kept in a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiException
from kubernetes.aio.dynamic import DynamicClient

from svc.errors import printable
from svc.kube.configuration import Way, configured
from svc.kube.errors import Conflict, Gone, KubernetesError, NotFound
from svc.kube.kinds import Kind

#: An object of the API server.
Object: TypeAlias = dict[str, Any]

REQUEST_SECONDS: Final = 30.0
WATCH_SECONDS: Final = 300
#: The server sends a bookmark each minute.
SILENCE_SECONDS: Final = 90.0
PAGE: Final = 500
#: The library's own limit would be one of five minutes for everything.
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
#: What the API server takes as part of a path.
_NAME: Final = re.compile(r"(?!\.\.?$)[^/%?#\s]{1,253}")
#: No kind: what the text of an error calls it.
_VERSION: Final = Kind("", "v1", "version", "Info", namespaced=False)
_BUSY: Final = (429, 502, 503, 504)
_CLASSES: Final[Mapping[int, type[KubernetesError]]] = {404: NotFound, 409: Conflict, 410: Gone}


class Change(NamedTuple):
    """An event of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the object."""

    type: str
    object: Object


class Client:
    """
    Reads and writes objects; each method may raise :class:`~svc.kube.errors.KubernetesError`.

    Args:
        way: from :func:`svc.kube.configuration.configured`.
        request: seconds within which a request is answered.
        watch: seconds after which the server ends a watch.
        silence: seconds without an event after which a watch counts as dead.
    """

    def __init__(
        self,
        way: Way,
        *,
        request: float = REQUEST_SECONDS,
        watch: int = WATCH_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._way = way
        self._api = way.api
        self._api.user_agent = "svc"
        self._seconds = request
        self._watch_seconds = watch
        self._silence = silence
        self._dynamic = DynamicClient(self._api)

    @property
    def context(self) -> str:
        """The context of the kubeconfig; empty where the cluster is the one around the pod."""
        return self._way.context

    @property
    def server(self) -> str:
        """The URL of the API server."""
        server: str = self._api.configuration.host
        return server

    def unreachable(self, detail: str) -> KubernetesError:
        """Return the error of a server that does not answer."""
        return KubernetesError("kubernetes_unreachable", server=self.server, detail=detail)

    async def version(self) -> tuple[Object, datetime | None]:
        """Read the version of the API server, and its time, to the second; None where it does not say it."""
        headers = await self._headers()
        with self._translated("read its version", _VERSION):
            async with asyncio.timeout(self._seconds):
                response = await self._dynamic.request(
                    "get", "/version", serialize=False, header_params=headers, _request_timeout=_TIMEOUT
                )
                document = json.loads(await response.read())
                if not isinstance(document, dict):
                    raise TypeError(document)
                return document, _date(response.headers.get("Date", ""))

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Read an object."""
        return await self._call(f"read {kind}", kind, "get", _path(kind, namespace, name))

    async def list(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """
        Read all objects of a namespace, or of all where it is empty.

        Args:
            labels: a selector.
            fields: a selector.

        Returns:
            The objects, and the version from which a watch goes on.
        """
        found: list[Object] = []
        identity = {"apiVersion": kind.api_version, "kind": kind.name}
        more = None
        while True:
            page = await self._call(
                *(f"list {kind}", kind, "get", _path(kind, namespace)),
                limit=PAGE,
                _continue=more,
                label_selector=labels or None,
                field_selector=fields or None,
            )
            found += [{**identity, **each} for each in page["items"] or ()]
            more = page["metadata"].get("continue")
            if not more:
                return found, page["metadata"]["resourceVersion"]

    async def create(self, kind: Kind, body: Object) -> Object:
        """Make an object; :class:`~svc.kube.errors.Conflict` where it is there already."""
        return await self._call(f"create {kind}", kind, "post", _path(kind, _namespace(body)), body)

    async def replace(self, kind: Kind, body: Object) -> Object:
        """Write an object as a whole; :class:`~svc.kube.errors.Conflict` where its version is not that of the body."""
        return await self._call(f"replace {kind}", kind, "put", _own_path(kind, body), body)

    async def apply(self, kind: Kind, body: Object, *, manager: str, subresource: str = "") -> Object:
        """
        Make or change an object by server-side apply; fields of other managers are taken over.

        Args:
            manager: the name by which the fields are owned; what it does not apply any more is removed.
            subresource: such as ``status``.
        """
        body = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        path = _own_path(kind, body) + (f"/{subresource}" if subresource else "")
        return await self._call(
            *(f"apply {kind}", kind, "patch", path, body),
            content_type="application/apply-patch+yaml",
            field_manager=manager,
            force_conflicts="true",
        )

    async def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Delete an object, and in the background what it owns; NotFound where there is none."""
        await self._call(f"delete {kind}", kind, "delete", _path(kind, namespace, name))

    async def watch(
        self, kind: Kind, namespace: str, version: str, *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Change, None]:
        """
        Follow the changes from a version on, until the server ends the watch.

        Raises:
            Gone: the server does not have them any more.
        """
        headers = await self._headers()
        with self._translated(f"watch {kind}", kind):
            async with asyncio.timeout(self._seconds):
                response = await self._dynamic.request(
                    *("get", _path(kind, namespace)),
                    serialize=False,
                    header_params=headers,
                    watch="true",
                    resource_version=version,
                    timeout_seconds=self._watch_seconds,
                    label_selector=labels or None,
                    field_selector=fields or None,
                    query_params=[("allowWatchBookmarks", "true")],
                    _request_timeout=_TIMEOUT,
                )
            try:
                while line := await asyncio.wait_for(response.content.readline(), self._silence):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise self._refusal(f"watch {kind}", kind, event["object"].get("code", 0), event["object"])
                    yield Change(event["type"], event["object"])
            finally:
                response.close()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def _call(
        self, action: str, kind: Kind, method: str, path: str, body: Object | None = None, **parameters: object
    ) -> Object:
        headers = await self._headers()
        with self._translated(action, kind):
            async with asyncio.timeout(self._seconds):
                response = await self._dynamic.request(
                    *(method, path, body),
                    serialize=False,
                    header_params=headers,
                    _request_timeout=_TIMEOUT,
                    **parameters,
                )
                answer: Object = json.loads(await response.read())
                return answer

    async def _headers(self) -> dict[str, str]:
        """Return those of the credentials, for which a person may have to be waited for."""
        authorization = await self._way.credentials.authorization()
        return {"Authorization": authorization} if authorization else {}

    @contextmanager
    def _translated(self, action: str, kind: Kind) -> Iterator[None]:
        try:
            yield
        except ApiException as error:
            raise self._refusal(action, kind, error.status, _status(error.body)) from error
        except TimeoutError as error:
            raise self.unreachable("nothing came in time") from error
        except aiohttp.ClientHttpProxyError as error:
            # Its text has the URL of the proxy, which may have a password.
            raise self.unreachable(f"the proxy to it answers with HTTP status {error.status}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self.unreachable(printable(error) or type(error).__name__) from error
        except (ValueError, LookupError, TypeError) as error:
            raise KubernetesError(action=action, detail="its answer is none of an API server") from error

    def _refusal(self, action: str, kind: Kind, status: int, body: Object) -> KubernetesError:
        """Return what an HTTP status means, with the ``Status`` object that came with it."""
        detail = printable(body.get("message") or f"HTTP status {status}")
        about = body.get("details") or {}
        if status == 401:
            self._way.credentials.refused()
            return KubernetesError("kubernetes_credentials", server=self.server, detail=detail)
        if status == 403:
            return KubernetesError("kubernetes_forbidden", action=action, detail=detail)
        if status in _BUSY:
            return KubernetesError("kubernetes_busy", action=action, detail=detail)
        if status == 404 and about.get("kind") == "namespaces" != kind.plural:
            return KubernetesError("kubernetes_no_namespace", namespace=about.get("name"))
        if status == 404 and not about.get("name"):
            return KubernetesError("kubernetes_no_kind", action=action, kind=str(kind))
        return _CLASSES.get(status, KubernetesError)(action=action, detail=detail)


async def connect(kubeconfig: str = "", context: str = "", *, environment: Mapping[str, str] = os.environ) -> Client:
    """
    Make the client of a cluster; nothing is asked yet.

    Args:
        kubeconfig: a file; where empty, what kubectl would use, or the service account of the pod.
        context: one of the kubeconfig; its current one where empty.
        environment: has ``KUBECONFIG`` and ``HOME``.

    Raises:
        KubernetesError: ``kubeconfig_unusable``.
    """
    return Client(await configured(kubeconfig, context, environment=environment))


def _date(text: str) -> datetime | None:
    """Read the field ``Date`` of an answer."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", _segment(namespace)]
    return "/" + "/".join([*parts, kind.plural, *([_segment(name)] if name else [])])


def _own_path(kind: Kind, body: Object) -> str:
    return _path(kind, _namespace(body), body["metadata"]["name"])


def _namespace(body: Object) -> str:
    namespace: str = body["metadata"].get("namespace", "")
    return namespace


def _segment(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise KubernetesError("kubernetes_name", name=name)
    return quote(name, safe="")


def _status(body: object) -> Object:
    """Read the ``Status`` object of a refusal; a load balancer sends none."""
    try:
        found = json.loads(body) if isinstance(body, str | bytes) else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
