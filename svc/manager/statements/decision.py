"""
Which pod the token of a caller proves, and what the statement of a pod contains.

The identity of a caller says its service account, the token which of its pods; both have to agree with each other and
with the pod as the API server has it. Nothing that the caller says becomes a fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from svc.errors import Reason, SvcError
from svc.naming import AUDIENCE_POD_TOKEN
from svc.notary.facts import Container, WorkloadFacts

#: An object of the API server.
Object: TypeAlias = Mapping[str, Any]
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
#: ``docker-pullable://name@sha256:...`` of some runtimes, ``name@sha256:...``, or for an image without a registry the
#: digest of its configuration alone.
_IMAGE_ID: Final = re.compile(r"(?:.*@)?(sha(?:256|384|512):[0-9a-f]{64,128})")
_ENDED: Final = ("Succeeded", "Failed")
_TOKEN_HINT: Final = "the pod needs a projected token of the audience svc-manager, which the webhook mounts"  # noqa: S105


class StatementDenied(SvcError):
    """a workload does not get the statement that it asks for"""

    reason = "statement_denied"
    hint = "its proxy issues its own statement"
    http_status = 403
    reasons = {
        "statement_caller_unknown": Reason(
            "{spiffe_id} is the identity of no service account of an enabled namespace",
            "give the namespace the label svc.internal/injection: enabled",
        ),
        "statement_caller_expired": Reason(
            "the SVID of {spiffe_id} has expired since the connection was made", "connect with the SVID of now"
        ),
        "statement_token_refused": Reason(
            "the API server does not accept the token for the audience {audience}: {detail}", _TOKEN_HINT
        ),
        "statement_token_unbound": Reason("the token of {account} is bound to no pod", _TOKEN_HINT),
        "statement_token_account": Reason(
            "the token is of {found}, and the SVID of {account}", "each pod gets the statement of its own"
        ),
        "statement_pod_unknown": Reason(
            "there is no pod {pod} with the UID {uid}", "a pod that is deleted gets no statement any more"
        ),
        "statement_pod_account": Reason(
            "the pod {pod} runs as {found}, and the SVID is of {account}", "each pod gets the statement of its own"
        ),
        "statement_pod_ended": Reason("the pod {pod} has ended: {phase}", "a pod that has ended gets no statement"),
    }


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The pod that a token is bound to."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def proved_pod(review: Object, account: Account) -> BoundPod:
    """
    Return the pod that a token proves.

    Args:
        review: the answer to a TokenReview for the audience :data:`~svc.naming.AUDIENCE_POD_TOKEN`.
        account: that of the caller's identity.

    Raises:
        StatementDenied: the token is not accepted, of another service account, or bound to no pod.
    """
    status = review.get("status") or {}
    if not status.get("authenticated") or AUDIENCE_POD_TOKEN not in (status.get("audiences") or ()):
        detail = status.get("error") or "it is valid, and for another audience"
        raise StatementDenied("statement_token_refused", audience=AUDIENCE_POD_TOKEN, detail=detail)
    user = status.get("user") or {}
    if user.get("username") != str(account):
        raise StatementDenied("statement_token_account", found=user.get("username", ""), account=account)
    extra = user.get("extra") or {}
    names, uids = list(extra.get(_POD_NAME) or ()), list(extra.get(_POD_UID) or ())
    if len(names) != 1 or len(uids) != 1:
        raise StatementDenied("statement_token_unbound", account=account)
    return BoundPod(account.namespace, names[0], uids[0])


def pod_facts(pod: Object | None, bound: BoundPod, account: Account) -> WorkloadFacts:
    """
    Return the facts about a pod.

    Args:
        pod: as the API server has it, with the name of ``bound``; None where there is none.
        bound: the pod that the caller has proved to be.
        account: that of the caller's identity.

    Raises:
        StatementDenied: there is no such pod any more, or it runs as another service account.
        FactsInvalid: it has values that no statement takes.
    """
    if pod is None or pod["metadata"]["uid"] != bound.uid:
        raise StatementDenied("statement_pod_unknown", pod=bound, uid=bound.uid)
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    found = Account(metadata["namespace"], spec.get("serviceAccountName") or "default")
    if found != account:
        raise StatementDenied("statement_pod_account", pod=bound, found=found, account=account)
    if status.get("phase") in _ENDED:
        raise StatementDenied("statement_pod_ended", pod=bound, phase=status["phase"])
    return WorkloadFacts.explicit(
        namespace=account.namespace,
        service_account=account.name,
        pod_name=bound.name,
        pod_uid=bound.uid,
        node=spec.get("nodeName"),
        containers=_containers(spec, status),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
    )


def _containers(spec: Object, status: Object) -> Iterator[Container]:
    for specified, statuses, init in (
        ("initContainers", "initContainerStatuses", True),
        ("containers", "containerStatuses", False),
        ("ephemeralContainers", "ephemeralContainerStatuses", False),
    ):
        images = {each["name"]: each.get("imageID") or "" for each in status.get(statuses) or ()}
        for each in spec.get(specified) or ():
            match = _IMAGE_ID.fullmatch(images.get(each["name"], ""))
            yield Container(each["name"], each["image"], None if match is None else match[1], init)
