"""Events about objects: what ``kubectl describe`` shows of what happened to them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal
from uuid import uuid4

from svc.errors import SvcError
from svc.kube.client import Client, Object
from svc.kube.errors import KubernetesError
from svc.kube.kinds import Kind
from svc.kube.times import to_micro_time

EVENTS: Final = Kind("events.k8s.io", "v1", "events", "Event")
#: Seconds in which there is one Event of an object and reason at most; its conditions say how it is.
INTERVAL: Final = 300.0
#: Objects and reasons that are remembered.
MAX_RECORDED: Final = 1024
#: Octets of a note, as the API server has it.
MAX_NOTE: Final = 1024


class EventRecorder:
    """
    Records Events.

    Args:
        component: the controller, such as ``svc.internal/manager``.
        instance: of it, such as the name of the pod.
        now: the time, aware.
        failed: receives why an Event could not be written; it is lost.
        interval: seconds.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        instance: str,
        now: Callable[[], datetime],
        failed: Callable[[SvcError], object],
        *,
        interval: float = INTERVAL,
    ) -> None:
        self._client = client
        self._reporter = {"reportingController": component, "reportingInstance": instance}
        self._now = now
        self._failed = failed
        self._interval = interval
        #: When an object and reason was last recorded, the oldest first.
        self._recorded: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def record(
        self, about: Object, kind: Literal["Normal", "Warning"], reason: str, action: str, note: str
    ) -> None:
        """
        Record that something happened to an object, unless the same was recorded a short while ago.

        Args:
            about: the object, with ``apiVersion`` and ``kind``.
            reason: one word in CamelCase.
            action: what was done, one word in CamelCase.
            note: a sentence for people; it is cut to 1024 octets.
        """
        key, now = (about["metadata"]["uid"], reason), asyncio.get_running_loop().time()
        if now - self._recorded.get(key, -self._interval) < self._interval:
            return
        self._recorded[key] = now
        self._recorded.move_to_end(key)
        if len(self._recorded) > MAX_RECORDED:
            self._recorded.popitem(last=False)
        try:
            await self._client.create(EVENTS, self._event(about, kind, reason, action, note))
        except KubernetesError as error:
            self._failed(error)

    def _event(self, about: Object, kind: str, reason: str, action: str, note: str) -> Object:
        metadata = about["metadata"]
        regarding = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.name,
            # Those of objects of the cluster are in this namespace.
            "metadata": {
                "name": f"{metadata['name'][:200]}.{uuid4().hex[:16]}",
                "namespace": metadata.get("namespace", "default"),
            },
            "regarding": {"apiVersion": about["apiVersion"], "kind": about["kind"], **regarding},
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note.encode()[:MAX_NOTE].decode(errors="ignore"),
            "eventTime": to_micro_time(self._now()),
            **self._reporter,
        }
