"""What can go wrong with an API server."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class KubernetesError(SvcError):
    """the Kubernetes API server refuses to {action}: {detail}"""

    reason = "kubernetes_refused"
    hint = "the explanation is the API server's own"
    reasons = {
        "kubeconfig_unusable": Reason(
            "there is no access to a Kubernetes cluster: {detail}",
            "name a kubeconfig in KUBECONFIG, and one of its contexts; kubectl get --raw /version tries it",
        ),
        "credential_plugin_failed": Reason(
            "nothing was asked of the cluster: the credential plugin {command} of the kubeconfig {failure}", "{advice}"
        ),
        "kubernetes_unreachable": Reason(
            "the Kubernetes API server at {server} does not answer: {detail}",
            "is the cluster running, and are server and certificate-authority of the kubeconfig right?",
        ),
        "kubernetes_busy": Reason(
            "the Kubernetes API server cannot {action} now: {detail}", "it is starting or overloaded: try again"
        ),
        "kubernetes_credentials": Reason(
            "the Kubernetes API server at {server} does not accept the credentials: {detail}",
            "they have expired or were withdrawn: log in again, or have a new kubeconfig written",
        ),
        "kubernetes_forbidden": Reason(
            "it is not allowed to {action}: {detail}",
            "a Role or ClusterRole must grant it; system:anonymous means that the kubeconfig gave no credentials",
        ),
        "kubernetes_no_namespace": Reason(
            "there is no namespace {namespace}", "create it (kubectl create namespace {namespace}), or name another one"
        ),
        "kubernetes_no_kind": Reason(
            "the cluster cannot {action}: it does not know {kind}", "install the custom resources of this version"
        ),
        "kubernetes_name": Reason("{name!r} is no name of an object of Kubernetes", "correct the name"),
    }


class NotFound(KubernetesError):
    """there is no object to {action}: {detail}"""

    reason = "kubernetes_not_found"
    hint = "is the name right, and the namespace?"


class Conflict(KubernetesError):
    """somebody else changed or made the object before this attempt to {action}: {detail}"""

    reason = "kubernetes_conflict"
    hint = "it is read again before the next attempt"


class Gone(KubernetesError):
    """the API server does not have the changes any more from which to {action}: {detail}"""

    reason = "kubernetes_gone"
    hint = "the objects are listed again"
