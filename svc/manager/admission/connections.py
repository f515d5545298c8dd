"""
The webhook that refuses to reach into pods of another compartment: ``kubectl exec``, ``attach`` and ``port-forward``.

What a request connects with has no labels, so the pod is read. Who may override compartments passes, as with
``svc exec --force``; so does everybody who is in no group of a compartment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from svc import naming
from svc.compartments.admission import admits, is_concerned
from svc.errors import SvcError
from svc.injection.errors import ReviewInvalid
from svc.injection.review import ReviewOutcome, ReviewRequest, permission, read_connection, refusal
from svc.kube.client import Client
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.kinds import PODS, SUBJECT_ACCESS_REVIEWS


class CompartmentRefused(SvcError):
    """the pod {pod} is in compartment {compartment}, and {user} is not"""

    reason = "compartment_refused"
    hint = "work in that compartment, or have the right to override compartments.svc.internal"
    http_status = 403


class ConnectionReviewFailed(SvcError):
    """whether the pod {pod} may be reached is not known: {detail}"""

    reason = "connection_review_failed"
    hint = "the manager asks the API server for the pod and for rights: look at its log"
    http_status = 503


class ConnectionReviews:
    """
    Answers reviews of connections.

    Args:
        client: returns the client of the API server; None as long as there is none.
    """

    def __init__(self, client: Callable[[], Client | None]) -> None:
        self._client = client

    async def answer(self, document: object) -> tuple[dict[str, object], ReviewOutcome]:
        """Return the body of the response, and what to count and log of it."""
        outcome = ReviewOutcome()
        uid = ""
        try:
            request = read_connection(document)
            uid = request.uid
            outcome = request.outcome
            await self._check(request)
        except CompartmentRefused as error:
            return refusal(uid, error), replace(outcome, result="denied", error=error)
        except (ReviewInvalid, ConnectionReviewFailed) as error:
            return refusal(uid, error), replace(outcome, error=error)
        return permission(uid), replace(outcome, result="allowed")

    async def _check(self, request: ReviewRequest) -> None:
        user = request.userInfo
        if not is_concerned(user.groups):
            return
        client = self._client()
        if client is None:
            raise ConnectionReviewFailed(pod=request.name, detail="there is no connection to the API server yet")
        try:
            pod = await client.get(PODS, request.name, request.namespace)
            label = (pod["metadata"].get("labels") or {}).get(naming.LABEL_COMPARTMENT)
            if admits(label, user.groups) or await _may_override(client, request):
                return
        except NotFound:
            # The API server says so itself.
            return
        except KubernetesError as error:
            raise ConnectionReviewFailed(pod=request.name, detail=str(error)) from error
        raise CompartmentRefused(pod=request.name, compartment=label, user=user.username)


async def _may_override(client: Client, request: ReviewRequest) -> bool:
    attributes = {
        "group": naming.DOMAIN,
        "resource": naming.RESOURCE_COMPARTMENTS,
        "verb": naming.VERB_OVERRIDE,
        "namespace": "",
    }
    user = request.userInfo
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra.items()},
        "resourceAttributes": attributes,
    }
    review = await client.create(SUBJECT_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
    return bool((review.get("status") or {}).get("allowed"))
