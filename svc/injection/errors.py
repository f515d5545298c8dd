"""Why a pod is refused, and why a review is not one."""

from __future__ import annotations

from svc.errors import Reason, SvcError
from svc.naming import ANNOTATION_INJECT, ANNOTATION_PORTS

_WITHOUT = f'the annotation {ANNOTATION_INJECT}: "false" leaves a pod without the proxy'


class InjectionRefused(SvcError):
    """the pod cannot have the proxy"""

    reason = "injection_refused"
    hint = _WITHOUT
    http_status = 403
    reasons = {
        "injection_annotation": Reason(
            "the annotation {annotation} is {value}: {defect}",
            "correct the annotation, in the template where there is one",
        ),
        "injection_ports_missing": Reason(
            f"neither the annotation {ANNOTATION_PORTS} nor a policy says what the proxy listens on",
            f"give the annotation, such as 8443:8080/http; {_WITHOUT}",
        ),
        "injection_port_taken": Reason(
            "the port {port} is for {taken}",
            f"choose another one in {ANNOTATION_PORTS}, or for the container",
        ),
        "injection_name_taken": Reason(
            "the pod has a {kind} {name} that is not the webhook's",
            f"give it another name; {_WITHOUT}, such as one in which it is written out by hand",
        ),
        "injection_shared": Reason("the pod has {key}: true, and {defect}", f"remove it; {_WITHOUT}"),
        "injection_facts": Reason(
            "the workload statement of the pod would be refused: {defect}", "correct the label or annotation"
        ),
        "injection_too_large": Reason(
            "the configuration of the proxy would have {size} octets, at most {limit} are possible",
            "it contains all labels, and the names of all annotations: remove some",
        ),
    }


class InjectionMissing(SvcError):
    """it is not configured what is injected into pods"""

    reason = "injection_not_configured"
    hint = f"the configuration of the manager needs the section injection; {_WITHOUT}"
    http_status = 503


class ReviewInvalid(SvcError):
    """the admission review cannot be answered: {defect}"""

    reason = "review_invalid"
    hint = "the webhook is for admission.k8s.io/v1 and the creation of pods: look at its configuration"
    http_status = 400
