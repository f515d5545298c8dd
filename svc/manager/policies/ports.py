"""What policies say of the proxy that is injected into a pod. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from svc.injection.config import InjectionSettings
from svc.injection.patch import PodSettings
from svc.kube.kinds import POLICIES
from svc.manager.policies.compiled import order
from svc.manager.policies.resource import PolicyResource, ProxyDocument

#: The weakest first.
_LEVELS: Final = get_args(InjectionSettings.model_fields["notarization"].annotation)


def pod_settings(
    policies: Iterable[PolicyResource],
    namespace: str,
    namespace_labels: Mapping[str, str],
    labels: Mapping[str, str],
    settings: InjectionSettings,
) -> PodSettings:
    """
    Return what is injected into one pod.

    Args:
        policies: those that are valid.
        namespace: of the pod.
        namespace_labels: of the namespace.
        labels: of the pod.
        settings: what is the same for all pods.
    """
    found = [
        (each, each.spec.proxy)
        for each in sorted(policies, key=lambda each: (each.key[0] != POLICIES.name, order(each.key)))
        if each.spec.proxy is not None
        and each.selects_namespace(namespace, namespace_labels)
        and each.selects_pod(labels)
    ]
    changes: dict[str, Any] = {}
    for name in ("requests", "limits"):
        amounts = next((value for _policy, proxy in found if (value := getattr(proxy, name)) is not None), None)
        if amounts is not None:
            changes[name] = amounts
    levels = [proxy.notarization for _policy, proxy in found if proxy.notarization is not None]
    changes["notarization"] = max([settings.notarization, *levels], key=_LEVELS.index)
    chosen = [(policy, proxy) for policy, proxy in found if proxy.inbound]
    changed = settings.model_copy(update=changes)
    if not chosen:
        return PodSettings(changed)
    policy, proxy = chosen[0]
    return PodSettings(changed, _ports(proxy), str(policy), tuple(_differences(chosen)))


def _ports(proxy: ProxyDocument) -> Any:
    return tuple(each.injected() for each in proxy.inbound)


def _differences(chosen: list[tuple[PolicyResource, ProxyDocument]]) -> Iterable[str]:
    first, given = chosen[0]
    for policy, proxy in chosen[1:]:
        if policy.key[0] == first.key[0] and set(proxy.inbound) != set(given.inbound):
            yield f"the ports are those of {first}: proxy.inbound of {policy} differs and is not used"
