"""
The changes of one pod, as operations of JSON Patch (RFC 6902).

What the webhook owns is written as a whole at every call, by name: the API server fills in defaults between two calls,
and other webhooks may have changed it. Nothing else of the pod is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from svc.injection.config import InjectionSettings
from svc.injection.container import configuration, own_ports, proxy_container, proxy_volumes
from svc.injection.errors import InjectionRefused
from svc.injection.pod import Named, PodContainer, PodSpec, PodView, Reference, read_shape
from svc.injection.ports import InjectedPort, parse_ports
from svc.naming import ANNOTATION_INJECT, ANNOTATION_PORTS, ENV_CONFIG, LABEL_INJECTED, PROXY_CONTAINER

#: The container that kubectl means where none is named.
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
#: Seconds for which an application goes on before it gets SIGTERM: requests that are under way still find it.
APPLICATION_SLEEP: Final = 4
_SHARED: Final = {
    "hostNetwork": "the ports of its proxy would be those of the node",
    "hostPID": "its proxy would not be process 1, which gets the signal to drain",
    "shareProcessNamespace": "its proxy would not be process 1, which gets the signal to drain",
}

#: ``op``, ``path`` and, unless something is removed, ``value``.
Operation = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Injection:
    """What changes of a pod, nothing where it is left alone, and sentences for whoever makes it."""

    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSettings:
    """
    What is injected into one pod.

    Attributes:
        ports: what the proxy listens on, unless an annotation says it.
        ports_of: the policy that says it.
        warnings: sentences for whoever makes the pod.
    """

    settings: InjectionSettings
    ports: tuple[InjectedPort, ...] = ()
    ports_of: str = ""
    warnings: tuple[str, ...] = ()


#: Returns what is injected into a pod with these labels.
Choose = Callable[[Mapping[str, str], InjectionSettings], PodSettings]


def inject(
    pod: Mapping[str, object],
    settings: InjectionSettings,
    trust_domain: str,
    source: str = "",
    choose: Choose | None = None,
) -> Injection:
    """
    Inject the proxy into a pod.

    Args:
        pod: as in an AdmissionReview: without name and namespace, perhaps, and perhaps with an earlier injection.
        settings: what is the same for all pods.
        trust_domain: of the pods.
        source: in place of that of the settings, where it is not empty.
        choose: what is injected into one pod, where that is not the same for all.

    Raises:
        InjectionRefused: the pod cannot have the proxy.
        ReviewInvalid: it is not a pod.
    """
    view = read_shape(pod, PodView, "pod")
    labels, annotations = view.metadata.labels or {}, view.metadata.annotations or {}
    if not _wanted(annotations):
        return Injection()
    _check_not_shared(view.spec)
    chosen = PodSettings(settings) if choose is None else choose(labels | {LABEL_INJECTED: "true"}, settings)
    settings = chosen.settings
    ports = _ports(view.spec, annotations, chosen)
    volumes = proxy_volumes(settings, source)
    _check_names(view.spec, volumes, ours=labels.get(LABEL_INJECTED) == "true")
    labels = labels | {LABEL_INJECTED: "true"}
    containers = view.spec.containers or ()
    if containers:
        annotations = {DEFAULT_CONTAINER: containers[0].name} | annotations
    text = configuration(settings, trust_domain, ports, labels, annotations)
    container = proxy_container(settings, ports, text)
    operations = (
        *_members("/metadata/labels", view.metadata.labels, labels),
        *_members("/metadata/annotations", view.metadata.annotations, annotations),
        *_first("/spec/initContainers", view.spec.initContainers, container),
        *_sleeps(view.spec),
        *_items("/spec/volumes", view.spec.volumes, volumes),
        *_references("/spec/imagePullSecrets", view.spec.imagePullSecrets, settings.imagePullSecrets),
    )
    return Injection(operations, (*_warnings(view.spec), *_port_warnings(annotations, chosen)))


def _wanted(annotations: Mapping[str, str]) -> bool:
    value = annotations.get(ANNOTATION_INJECT, "true")
    if value not in ("true", "false"):
        raise InjectionRefused(
            "injection_annotation", annotation=ANNOTATION_INJECT, value=value, defect="true or false is expected"
        )
    return value == "true"


def _check_not_shared(spec: PodSpec) -> None:
    for key, defect in _SHARED.items():
        if getattr(spec, key):
            raise InjectionRefused("injection_shared", key=key, defect=defect)


def _port_warnings(annotations: Mapping[str, str], chosen: PodSettings) -> Iterator[str]:
    if ANNOTATION_PORTS not in annotations:
        yield from chosen.warnings
    elif chosen.ports:
        yield f"the annotation {ANNOTATION_PORTS} goes before proxy.inbound of {chosen.ports_of}"


def _ports(spec: PodSpec, annotations: Mapping[str, str], chosen: PodSettings) -> tuple[InjectedPort, ...]:
    if ANNOTATION_PORTS in annotations:
        ports = parse_ports(annotations[ANNOTATION_PORTS])
    elif chosen.ports:
        ports = chosen.ports
    else:
        raise InjectionRefused("injection_ports_missing")
    own = own_ports(chosen.settings)
    declared = {
        port.containerPort: f"the container {container.name}"
        for container in (*(spec.containers or ()), *_others(spec))
        for port in container.ports or ()
        if port.protocol in (None, "TCP")
    }
    for number in sorted(own.keys() & declared.keys()):
        raise InjectionRefused("injection_port_taken", port=number, taken=f"{own[number]}, not {declared[number]}")
    for port in ports:
        if port.application in own:
            raise InjectionRefused("injection_port_taken", port=port.application, taken=own[port.application])
        if taken := (own | declared).get(port.listen):
            raise InjectionRefused("injection_port_taken", port=port.listen, taken=taken)
    return ports


def _others(spec: PodSpec) -> Iterator[PodContainer]:
    return (each for each in spec.initContainers or () if each.name != PROXY_CONTAINER)


def _check_names(spec: PodSpec, volumes: Sequence[dict[str, object]], *, ours: bool) -> None:
    """Refuse what has one of the webhook's names, unless it comes from an earlier injection."""
    for each in spec.containers or ():
        if each.name == PROXY_CONTAINER:
            raise InjectionRefused("injection_name_taken", kind="container", name=each.name)
    present = [each for each in spec.initContainers or () if each.name == PROXY_CONTAINER]
    ours = ours and any(variable.name == ENV_CONFIG for each in present for variable in each.env or ())
    if present and not ours:
        raise InjectionRefused("injection_name_taken", kind="init container", name=PROXY_CONTAINER)
    names = {volume["name"] for volume in volumes}
    for volume in spec.volumes or ():
        if volume.name in names and not ours:
            raise InjectionRefused("injection_name_taken", kind="volume", name=volume.name)


def _members(path: str, present: Mapping[str, str] | None, wanted: Mapping[str, str]) -> Iterator[Operation]:
    """Add what a mapping lacks."""
    if present is None:
        yield {"op": "add", "path": path, "value": dict(wanted)}
        return
    for name, value in wanted.items():
        if present.get(name) != value:
            pointer = name.replace("~", "~0").replace("/", "~1")
            yield {"op": "add", "path": f"{path}/{pointer}", "value": value}


def _first(path: str, present: Sequence[PodContainer] | None, container: dict[str, object]) -> Iterator[Operation]:
    """Make a container the first one of its name."""
    if present is None:
        yield {"op": "add", "path": path, "value": [container]}
        return
    yield from _removals(path, present, {container["name"]})
    yield {"op": "add", "path": f"{path}/0", "value": container}


def _items(path: str, present: Sequence[Named] | None, wanted: Sequence[dict[str, object]]) -> Iterator[Operation]:
    """Make items the last ones of their names."""
    if present is None:
        yield {"op": "add", "path": path, "value": list(wanted)}
        return
    yield from _removals(path, present, {each["name"] for each in wanted})
    yield from ({"op": "add", "path": f"{path}/-", "value": each} for each in wanted)


def _references(path: str, present: Sequence[Reference] | None, wanted: Sequence[str]) -> Iterator[Operation]:
    """Add references that are not there, behind those that are."""
    names = {each.name for each in present or ()}
    missing = [{"name": name} for name in wanted if name not in names]
    if present is None and missing:
        yield {"op": "add", "path": path, "value": missing}
    else:
        yield from ({"op": "add", "path": f"{path}/-", "value": each} for each in missing)


def _removals(path: str, present: Sequence[Named] | Sequence[PodContainer], names: set[object]) -> Iterator[Operation]:
    """Remove items by name, the last one first, since each removal moves those behind it."""
    for number in reversed(range(len(present))):
        if present[number].name in names:
            yield {"op": "remove", "path": f"{path}/{number}"}


def _sleep(spec: PodSpec) -> int:
    """Half of the grace at most: Kubernetes refuses a longer one than all of it, and SIGTERM needs the rest."""
    return min(APPLICATION_SLEEP, spec.grace // 2)


def _sleeps(spec: PodSpec) -> Iterator[Operation]:
    seconds = _sleep(spec)
    if seconds < 1:
        return
    pre_stop = {"sleep": {"seconds": seconds}}
    for number, container in enumerate(spec.containers or ()):
        path = f"/spec/containers/{number}/lifecycle"
        if container.lifecycle is None:
            yield {"op": "add", "path": path, "value": {"preStop": pre_stop}}
        elif container.lifecycle.preStop is None:
            yield {"op": "add", "path": f"{path}/preStop", "value": pre_stop}


def _warnings(spec: PodSpec) -> Iterator[str]:
    if _sleep(spec) < APPLICATION_SLEEP:
        yield (
            f"terminationGracePeriodSeconds {spec.grace} is below {2 * APPLICATION_SLEEP}: requests that arrive while"
            " the pod ends can fail"
        )
