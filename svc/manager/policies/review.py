"""
The decision on a policy that somebody makes, changes or deletes: refused where it is not valid, else with warnings.

A key that is not known is refused: dropped, it would make a rule wider. A license refuses new policies alone. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from svc.errors import SvcError
from svc.injection.errors import ReviewInvalid
from svc.injection.review import ReviewOutcome, ReviewRequest, permission, read_review, refusal
from svc.kube.kinds import CLUSTER_POLICIES, POLICIES
from svc.manager.policies.overlap import conflicts, own_findings
from svc.manager.policies.resource import PolicyResource, defects, describe, key_of, read_policy
from svc.settings import ConfigInvalid

#: What kubectl prints: the API server cuts the warnings of a response at 4,096 characters.
MAX_WARNINGS: Final = 16
MAX_WARNING: Final = 240
_RESOURCES: Final = {kind.plural: kind for kind in (CLUSTER_POLICIES, POLICIES)}


class PolicyInvalid(SvcError):
    """{policy} is not valid: {defects}"""

    reason = "policy_object_invalid"
    hint = "correct it: kubectl explain shows the keys, and docs/policy.md what they mean"
    http_status = 422


class PolicyUnlicensed(SvcError):
    """a new policy is refused: {state}"""

    reason = "policy_unlicensed"
    hint = "policies that are there can be changed and deleted: svc license status says more"
    http_status = 403


@dataclass(frozen=True)
class LicenseEffect:
    """
    What a license does to policies that are made.

    Attributes:
        state: says what is wrong with it.
        refuses: whether new policies are refused; else there is a warning.
    """

    state: str
    refuses: bool


def review_policy(
    document: object, policies: Iterable[PolicyResource], license_effect: LicenseEffect | None
) -> tuple[dict[str, object], ReviewOutcome]:
    """
    Answer a review.

    Args:
        document: the body of the request, parsed.
        policies: all that are valid.
        license_effect: None where the license has none.

    Returns:
        The body of the response, and what to count and log of it.
    """
    uid, outcome = "", ReviewOutcome()
    try:
        request = read_review(document)
        uid, outcome = request.uid, request.outcome
        if outcome.resource not in _RESOURCES:
            raise ReviewInvalid(defect=f"{request.operation} of {request.what}")
        warnings = list(_warnings(request, policies, license_effect))
    except (PolicyInvalid, PolicyUnlicensed) as error:
        return refusal(uid, error), replace(outcome, result="denied", error=error)
    except ReviewInvalid as error:
        return refusal(uid, error), replace(outcome, error=error)
    return permission(uid, warnings=warnings), replace(outcome, result="allowed")


def _warnings(
    request: ReviewRequest, policies: Iterable[PolicyResource], license_effect: LicenseEffect | None
) -> Iterable[str]:
    if request.operation == "DELETE":
        return ()
    if request.operation == "CREATE" and license_effect is not None and license_effect.refuses:
        raise PolicyUnlicensed(state=license_effect.state)
    found = _object(request)
    if request.operation == "UPDATE" and found["metadata"].get("deletionTimestamp"):
        # Its finalizers are removed: it must be possible to delete one that is not valid.
        return ()
    try:
        policy = read_policy(found)
    except ConfigInvalid as error:
        raise PolicyInvalid(policy=describe(key_of(found)), defects=defects(error)) from error
    sentences = [*own_findings(policy)]
    others = [each for each in policies if each.key != policy.key]
    sentences += conflicts(policy, others)
    sentences += [f"{other}: {sentence}" for other in others for sentence in conflicts(other, [policy])]
    if license_effect is not None:
        sentences.append(license_effect.state)
    more = len(sentences) - MAX_WARNINGS
    shown = list(islice(sentences, MAX_WARNINGS)) + ([f"and {more} more"] if more > 0 else [])
    return [each if len(each) <= MAX_WARNING else f"{each[: MAX_WARNING - 1]}…" for each in shown]


def _object(request: ReviewRequest) -> dict[str, Any]:
    kind = _RESOURCES[request.outcome.resource]
    found: Any = request.object_
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict):
        raise ReviewInvalid(defect=f"{request.operation} of {request.what} without an object")
    # The API server completes the name of one with generateName later.
    named = {**metadata, "name": metadata.get("name") or request.name or f"{metadata.get('generateName', '')}new"}
    if kind.namespaced:
        named["namespace"] = request.namespace
    return {**found, "apiVersion": kind.api_version, "kind": kind.name, "metadata": named}
