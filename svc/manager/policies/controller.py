"""
The controller of policies: objects in, the ConfigMap of each enabled namespace and the status of each object out.

A namespace that is no longer enabled goes on having its ConfigMap, which its running proxies read, until somebody
deletes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, Self

from twisted.logger import Logger

from svc import naming
from svc.errors import SvcError
from svc.kube.cache import Cache, run_all
from svc.kube.client import Object
from svc.kube.errors import Conflict, KubernetesError, NotFound
from svc.kube.kinds import CONFIG_MAPS, NAMESPACES
from svc.kube.status import apply_status
from svc.manager.context import ClusterContext
from svc.manager.policies.compiled import (
    CompiledTooLarge,
    Document,
    compiled_map,
    compiled_text,
    documents_for,
    published_list,
    read_compiled,
)
from svc.manager.policies.overlap import conflict
from svc.manager.policies.resource import KINDS, Key, PolicyResource, defects, key_of, read_policy
from svc.manager.policies.status import Outcome, policy_status
from svc.policyfiles.published import PublishedPolicies
from svc.settings import ConfigInvalid
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.logs import emit

#: Seconds between two attempts while one namespace refuses: meanwhile the policies of others are not written.
LONGEST_PAUSE: Final = 5.0
#: By which the metrics name what is written.
_KEPT: Final = "compiled-policies"


@dataclass(frozen=True)
class _Programmed:
    """The documents of a namespace, and why its proxies do not have them."""

    documents: Mapping[Key, Document]
    failure: SvcError | None = None


class _Content(NamedTuple):
    """All policies, the valid ones of them, and the keys of the others."""

    found: Mapping[Key, PolicyResource | ConfigInvalid]
    valid: Sequence[PolicyResource]
    invalid: frozenset[Key]

    @classmethod
    def of(cls, found: Mapping[Key, PolicyResource | ConfigInvalid]) -> Self:
        valid = [each for each in found.values() if isinstance(each, PolicyResource)]
        return cls(found, valid, frozenset(found).difference(each.key for each in valid))


class PolicyController:
    """
    Follows policies and namespaces on every replica, and writes where this one leads.

    Args:
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "svc-cluster-policy"

    def __init__(self, context: ClusterContext, changed: Callable[[], object]) -> None:
        self._client = context.client
        self._own_namespace = context.namespace
        self._now = context.now
        self._metrics = context.metrics
        self._changed = changed
        self._namespaces = context.cache(NAMESPACES, self._touched)
        self._maps = context.named(CONFIG_MAPS, naming.COMPILED_CONFIG_MAP, self._touched)
        self._objects = {name: context.cache(kind, self._seen) for name, (kind, _label, _model) in KINDS.items()}
        #: What was read of objects, by what changes when their content does.
        self._read: dict[tuple[Key, str, int], PolicyResource | ConfigInvalid] = {}
        #: What there is, with the valid ones and the others by key; None when it is to be read anew.
        self._content: _Content | None = None
        #: The documents of each namespace whose proxies ask for them, with what they are sent as.
        self._published: dict[str, tuple[list[Document], PublishedPolicies]] = {}
        #: What is sent as long as nothing changes.
        self._answers: dict[str, PublishedPolicies] = {}
        #: What each namespace was given last.
        self._given: dict[str, Mapping[Key, Document]] = {}
        #: How each policy meets others.
        self._compared: dict[PolicyResource, dict[PolicyResource, tuple[str, ...]]] = {}

    @property
    def caches(self) -> tuple[Cache, ...]:
        """What it follows."""
        return self._namespaces, self._maps, *self._objects.values()

    async def follow(self) -> None:
        await run_all(self.caches)

    @property
    def synced(self) -> bool:
        """Whether all policies were read once."""
        return all(each.synced.is_set() for each in self._objects.values())

    @property
    def policies(self) -> list[PolicyResource]:
        """Those that are valid."""
        return [each for each in self._all().values() if isinstance(each, PolicyResource)]

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        """
        Return the labels of a namespace, asked for where it is newer than what was read.

        Raises:
            KubernetesError: it is not known.
        """
        found = self._namespaces.objects.get(("", namespace)) or await self._client.get(NAMESPACES, namespace)
        return found["metadata"].get("labels") or {}

    async def reconcile(self) -> None:
        """
        Write the ConfigMaps that differ, then the statuses.

        Raises:
            KubernetesError: one was refused; the others are as they should be.
        """
        found, valid, invalid = _Content.of(self._all())
        enabled = {name for name, each in self._living() if self._is_enabled(name, each)}
        programmed = {
            name: await self._program(name, labels, valid, invalid)
            for name, each in self._living()
            if name in enabled or _is_own(self._maps.objects.get((name, naming.COMPILED_CONFIG_MAP)))
            for labels in [each["metadata"].get("labels") or {}]
        }
        self._given = {name: each.documents for name, each in programmed.items()}
        failures = [each.failure for each in programmed.values() if isinstance(each.failure, KubernetesError)]
        self._compared = {each: self._compared.get(each, {}) for each in valid}
        places: dict[str, list[PolicyResource]] = {}
        for each in valid:
            places.setdefault(each.key[1], []).append(each)
        for key, content in found.items():
            # Some milliseconds each, while the Lease is renewed and reviews are answered.
            await asyncio.sleep(0)
            # Those of other namespaces do not meet it, and those of namespaces take nothing from one of the cluster.
            near = [*places.get("", ()), *(places.get(key[1], ()) if key[1] else ())]
            outcome = self._outcome(key, content, near, enabled, programmed)
            try:
                await self._write_status(key, outcome)
            except (Conflict, NotFound):
                # Somebody was faster: the watch brings what it is now.
                continue
            except KubernetesError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def published(self, namespace: str) -> PublishedPolicies | None:
        """
        Return what the proxies of a namespace get of this replica, as every other one does.

        Returns:
            None as long as not everything was read once, or for a namespace that is not there.
        """
        there = self._namespaces.objects.get(("", namespace))
        if there is None or not all(each.synced.is_set() for each in self.caches):
            self._published.pop(namespace, None)
            return None
        if namespace not in self._answers:
            self._answers[namespace] = self._publish(namespace, there["metadata"].get("labels") or {})
        return self._answers[namespace]

    def _publish(self, namespace: str, labels: Mapping[str, str]) -> PublishedPolicies:
        if self._content is None:
            self._content = _Content.of(self._all())
        content, found = self._content, self._maps.objects.get((namespace, naming.COMPILED_CONFIG_MAP))
        written = cache(lambda: {} if found is None else read_compiled(found))
        # As the leader has it in the ConfigMap, so that all replicas agree.
        kept = {key: each for key, each in written().items() if key in content.invalid} if content.invalid else {}
        documents = documents_for(content.valid, namespace, labels, kept)
        former = self._published.get(namespace)
        if former is None or former[0] != documents:
            former = self._published[namespace] = documents, published_list(namespace, documents, written)
        return former[1]

    async def _program(
        self, namespace: str, labels: Mapping[str, str], valid: Iterable[PolicyResource], invalid: Container[Key]
    ) -> _Programmed:
        """Give a namespace its documents; those of before stay where that is not possible."""
        await asyncio.sleep(0)
        found = self._maps.objects.get((namespace, naming.COMPILED_CONFIG_MAP))
        given = self._given.get(namespace)
        if given is None:
            given = {} if found is None else read_compiled(found)
        kept = {key: document for key, document in given.items() if key in invalid}
        documents = documents_for(valid, namespace, labels, kept)
        try:
            wanted = compiled_map(namespace, compiled_text(namespace, documents))
            await self._write_map(found, wanted, len(documents))
        except CompiledTooLarge as error:
            self._metrics.kept(_KEPT, success=False)
            return _Programmed(given, error)
        except (Conflict, NotFound):
            # Somebody was faster, or the namespace ends: the watch brings what it is now.
            return _Programmed(given)
        except KubernetesError as error:
            self._metrics.kept(_KEPT, success=False)
            return _Programmed(given, error)
        return _Programmed({key_of(dict(each)): each for each in documents})

    async def _write_map(self, found: Object | None, wanted: Object, count: int) -> None:
        if found is not None and found.get("data") == wanted["data"] and _is_own(found):
            return
        namespace = wanted["metadata"]["namespace"]
        if found is None:
            # By its name, for which alone there is a right.
            await self._client.apply(CONFIG_MAPS, wanted, manager=naming.MANAGER)
        else:
            wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            await self._client.replace(CONFIG_MAPS, wanted)
        self._metrics.kept(_KEPT, success=True)
        emit(
            self.log,
            ManagerEvent.POLICIES_COMPILED,
            attributes={
                "namespace": namespace,
                "policies": count,
                "action": "created" if found is None else "replaced",
            },
        )

    def _outcome(
        self,
        key: Key,
        content: PolicyResource | ConfigInvalid,
        near: list[PolicyResource],
        enabled: set[str],
        programmed: Mapping[str, _Programmed],
    ) -> Outcome:
        if isinstance(content, ConfigInvalid):
            having = [each for each in programmed.values() if key in each.documents]
            return Outcome(defects(content), kept=bool(having), namespaces=len(having))
        about = {
            name
            for name, each in self._living()
            if name in programmed and content.selects_namespace(name, each["metadata"].get("labels") or {})
        }
        failures = [each.failure for name in sorted(about) if (each := programmed[name]).failure is not None]
        return Outcome(
            namespaces=len(about & enabled),
            failure=failures[0] if failures and content.document is not None else None,
            conflicts=self._conflicts(content, near),
            authorizes=content.document is not None,
        )

    def _conflicts(self, policy: PolicyResource, near: list[PolicyResource]) -> list[str]:
        """Compare what was not compared before."""
        before = self._compared[policy]
        found = {
            each: before[each] if each in before else conflict(policy, each) for each in near if each is not policy
        }
        self._compared[policy] = found
        return [sentence for sentences in found.values() for sentence in sentences]

    async def _write_status(self, key: Key, outcome: Outcome) -> None:
        kind = KINDS[key[0]][0]
        found = self._objects[key[0]].objects.get(key[1:])
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            status = policy_status(found, outcome, self._now())
            await apply_status(self._client, kind, found, status, manager=naming.MANAGER)

    def _seen(self) -> None:
        for name, (_kind, label, _model) in KINDS.items():
            self._metrics.policies(label, len(self._objects[name].objects))
        self._touched()

    def _touched(self) -> None:
        self._content = None
        self._answers.clear()
        self._changed()

    def _all(self) -> dict[Key, PolicyResource | ConfigInvalid]:
        """Read what is new."""
        read: dict[tuple[Key, str, int], PolicyResource | ConfigInvalid] = {}
        for followed in self._objects.values():
            for each in followed.objects.values():
                metadata = each["metadata"]
                version = (key_of(each), metadata["uid"], metadata.get("generation", 0))
                read[version] = self._read.get(version) or _content(each)
        self._read = read
        return {key: content for (key, _uid, _generation), content in read.items()}

    def _living(self) -> Iterable[tuple[str, Object]]:
        """The namespaces that do not end."""
        return [
            (name, each)
            for (_none, name), each in sorted(self._namespaces.objects.items())
            if "deletionTimestamp" not in each["metadata"]
        ]

    def _is_enabled(self, name: str, namespace: Object) -> bool:
        labels = namespace["metadata"].get("labels") or {}
        return name != self._own_namespace and labels.get(naming.LABEL_INJECTION) == naming.INJECTION_ENABLED


def _content(found: Object) -> PolicyResource | ConfigInvalid:
    try:
        return read_policy(found)
    except ConfigInvalid as error:
        return error


def _is_own(found: Object | None) -> bool:
    labels = {} if found is None else found["metadata"].get("labels") or {}
    return labels.get(naming.LABEL_MANAGED_BY) == naming.MANAGER
