"""What the webhook answers to reviews of pods and of policies: the concerns that a decision needs, brought together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from svc.errors import SvcError
from svc.injection import InjectionSettings, PodSettings, ReviewOutcome, review
from svc.injection.errors import ReviewInvalid
from svc.injection.review import read_review, refusal
from svc.kube.errors import KubernetesError
from svc.manager.context import ClusterContext
from svc.manager.policies.controller import PolicyController
from svc.manager.policies.ports import pod_settings
from svc.manager.policies.resource import PolicyResource
from svc.manager.policies.review import LicenseEffect, review_policy


class PoliciesUnknown(SvcError):
    """the policies of the namespace {namespace} are not known yet: {detail}"""

    reason = "policies_unknown"
    hint = "try again: a manager that has just started reads them first; its log says what it cannot read"
    http_status = 503


class Reviews:
    """
    Answers reviews.

    Args:
        context: returns that of the configuration in force, None as long as there is none.
        policies: returns the controller of policies, None as long as there is none.
        license_effect: returns what the license does to new policies.
    """

    def __init__(
        self,
        context: Callable[[], ClusterContext | None],
        policies: Callable[[], PolicyController | None],
        license_effect: Callable[[], LicenseEffect | None],
    ) -> None:
        self._context = context
        self._policies = policies
        self._license_effect = license_effect

    async def pod(self, document: object) -> tuple[dict[str, object], ReviewOutcome]:
        """Inject the proxy into a pod, as the policies of its namespace say."""
        context = self._context()
        if context is None or context.settings.injection is None:
            return review(document, None, "")
        try:
            request = read_review(document)
            policies, namespace_labels = await self._known(request.namespace)
        except ReviewInvalid:
            # It is answered as such.
            return review(document, None, "")
        except PoliciesUnknown as error:
            return refusal(request.uid, error), replace(request.outcome, error=error)

        def choose(labels: Mapping[str, str], settings: InjectionSettings) -> PodSettings:
            return pod_settings(policies, request.namespace, namespace_labels, labels, settings)

        return review(document, context.settings.injection, context.settings.trustDomain, choose=choose)

    async def policy(self, document: object) -> tuple[dict[str, object], ReviewOutcome]:
        """Decide on a policy; those of before are not needed for that, only for warnings."""
        controller = self._policies()
        known = [] if controller is None else controller.policies
        return review_policy(document, known, self._license_effect())

    async def _known(self, namespace: str) -> tuple[list[PolicyResource], Mapping[str, str]]:
        controller = self._policies()
        if controller is None or not controller.synced:
            raise PoliciesUnknown(namespace=namespace, detail="they were not read")
        try:
            return controller.policies, await controller.labels_of(namespace)
        except KubernetesError as error:
            raise PoliciesUnknown(namespace=namespace, detail=error) from error
