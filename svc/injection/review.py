"""
The response to an ``AdmissionReview`` of ``admission.k8s.io/v1``, and what the caller counts and logs of it.

A review that is not understood is an error, which the API server treats as a refusal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from svc.errors import SvcError
from svc.injection.config import InjectionSettings
from svc.injection.errors import InjectionMissing, InjectionRefused, ReviewInvalid
from svc.injection.patch import Choose, Injection, inject
from svc.injection.pod import ListOf, Shape, read_shape
from svc.naming import DOMAIN

_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
#: Those that outcomes name, by group, version, resource and subresource.
_RESOURCES: Final = {
    **{f"v1/{name}": name for name in ("pods", "pods/exec", "pods/attach", "pods/portforward")},
    **{f"{DOMAIN}/v1alpha1/{name}": name for name in ("svcclusterpolicies", "svcpolicies")},
}
_NO_NAMESPACES: Final[Mapping[str, str]] = MappingProxyType({})


class _Resource(Shape):
    group: str
    version: str
    resource: str


class ReviewUser(Shape):
    """Who makes the request."""

    username: str = ""
    uid: str = ""
    groups: ListOf[str] = ()
    extra: dict[str, list[str]] = {}


class ReviewRequest(Shape):
    """The request that is reviewed."""

    uid: str = Field(min_length=1, max_length=128)
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    resource: _Resource
    subResource: str = ""
    name: str = ""
    namespace: str = ""
    userInfo: ReviewUser = ReviewUser()
    dryRun: bool = False
    object_: dict[str, object] | None = Field(None, alias="object")

    @property
    def what(self) -> str:
        """Group, version, resource and subresource."""
        found = self.resource
        return "/".join(filter(None, (found.group, found.version, found.resource, self.subResource)))

    @property
    def outcome(self) -> ReviewOutcome:
        """What is known before it is decided."""
        metadata = (self.object_ or {}).get("metadata")
        names = (metadata.get("name"), metadata.get("generateName")) if isinstance(metadata, dict) else ()
        return ReviewOutcome(
            operation=self.operation,
            resource=_RESOURCES.get(self.what, "other"),
            namespace=self.namespace,
            name=next((name for name in (*names, self.name) if name and isinstance(name, str)), ""),
            user=self.userInfo.username,
            dry_run=self.dryRun,
        )


class _Review(Shape):
    apiVersion: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: ReviewRequest


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """
    What became of a review.

    Attributes:
        result: the word of the metric.
        operation: ``CREATE``, ``UPDATE``, ``DELETE``, ``CONNECT``, or ``other`` where it is not known.
        resource: such as ``pods`` or ``pods/exec``, or ``other``.
        namespace: of the object.
        name: its name, or the beginning of one that the API server completes later.
        user: who makes the request.
        dry_run: whether it will not be made in any case.
        injected: whether it gets the proxy.
        error: why it is not allowed.
    """

    result: Literal["allowed", "denied", "error"] = "error"
    operation: str = "other"
    resource: str = "other"
    namespace: str = ""
    name: str = ""
    user: str = ""
    dry_run: bool = False
    injected: bool = False
    error: SvcError | None = None


def review(
    document: object,
    settings: InjectionSettings | None,
    trust_domain: str,
    namespaces: Mapping[str, str] = _NO_NAMESPACES,
    choose: Choose | None = None,
) -> tuple[dict[str, object], ReviewOutcome]:
    """
    Answer a review.

    Args:
        document: the body of the request, parsed.
        settings: what is the same for all pods; None where it is not known.
        trust_domain: of the pods.
        namespaces: by namespace, the folder of the Workload API (``source``) where it is not that of the settings.
        choose: what is injected into one pod, where that is not the same for all.

    Returns:
        The body of the response, and what to count and log of it.
    """
    uid, outcome = "", ReviewOutcome()
    try:
        request = read_review(document)
        uid, outcome = request.uid, request.outcome
        if request.operation != "CREATE" or outcome.resource != "pods" or request.object_ is None:
            raise ReviewInvalid(defect=f"{request.operation} of {request.what}")
        if settings is None:
            raise InjectionMissing
        injection = inject(request.object_, settings, trust_domain, namespaces.get(request.namespace, ""), choose)
    except InjectionRefused as error:
        return refusal(uid, error), replace(outcome, result="denied", error=error)
    except (ReviewInvalid, InjectionMissing) as error:
        return refusal(uid, error), replace(outcome, error=error)
    return permission(uid, injection), replace(outcome, result="allowed", injected=bool(injection.operations))


def read_review(document: object) -> ReviewRequest:
    """
    Read a review.

    Raises:
        ReviewInvalid: it is none.
    """
    return read_shape(document, _Review, "review").request


def read_connection(document: object) -> ReviewRequest:
    """
    Read the review of a connection to a pod.

    Raises:
        ReviewInvalid: it is none.
    """
    request = read_review(document)
    if request.operation != "CONNECT" or not request.outcome.resource.startswith("pods/"):
        raise ReviewInvalid(defect=f"{request.operation} of {request.what}")
    return request


def permission(
    uid: str,
    injection: Injection = Injection(),  # noqa: B008 - it cannot be changed
    warnings: Sequence[str] = (),
) -> dict[str, object]:
    """Write the body of a response that allows a request, with what is changed of it."""
    response: dict[str, object] = {"uid": uid, "allowed": True}
    if injection.operations:
        patch = json.dumps(injection.operations, separators=(",", ":")).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode("ascii")}
    if warnings or injection.warnings:
        response["warnings"] = [*injection.warnings, *warnings]
    return _document(response)


def refusal(uid: str, error: SvcError) -> dict[str, object]:
    """Write the body of a response that refuses a request."""
    status = {"code": error.http_status, "message": f"{error}; {error.hint}"}
    return _document({"uid": uid, "allowed": False, "status": status})


def _document(response: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}
