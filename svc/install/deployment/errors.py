"""What stops an installation on a cluster."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class DeploymentError(SvcError):
    """the installation failed"""

    reason = "deployment_failed"
    hint = "the line above says where"
    reasons = {
        "helm_missing": Reason(
            "there is no helm: neither SVC_HELM nor PATH names one", "install Helm 3 or 4, or set SVC_HELM to its path"
        ),
        "helm_unusable": Reason("{program} is no usable Helm: {detail}", "install Helm 3 or 4, or set SVC_HELM"),
        "helm_failed": Reason(
            "helm {verb} failed: {detail}", "svc check shows which part of the installation is not ready, and why"
        ),
        "helm_interrupted": Reason(
            "helm {verb} was interrupted, and has ended: {detail}", "run the same command again to finish it"
        ),
        "chart_unusable": Reason("{path} is no chart svc-core: {defect}", "take the chart of a release"),
        "values_refused": Reason("the values cannot be read: {detail}", "svc help install shows how they are written"),
        "chart_not_rendered": Reason(
            "the chart cannot be rendered with these values: {detail}",
            "svc files chart prints the folder with its values.yaml; --set-string takes a number as a text",
        ),
        "value_unknown": Reason("the chart has no value {path}", "{suggestion}"),
        "value_owned": Reason(
            "{path} is not a value to set: it follows from the release and the registry", "{instead}"
        ),
        "trust_domain_missing": Reason(
            "the trust domain is not given, and it cannot be changed later",
            "choose one for this cluster, such as --set trustDomain=prod.example.org",
        ),
        "release_there": Reason(
            "svc-core {installed} is installed already, and {target} is to be installed",
            "add --upgrade to upgrade it",
        ),
        "release_absent": Reason(
            "there is no release svc-core to upgrade in namespace {namespace}", "leave out --upgrade to install it"
        ),
        "downgrade": Reason(
            "svc-core {installed} is newer than {target}",
            "to go back name the older version: --upgrade --version {target}",
        ),
        "upgrade_too_far": Reason(
            "svc-core {installed} cannot be upgraded to {target} at once",
            "upgrade to {oldest} first: --upgrade --version {oldest}",
        ),
        "kubernetes_too_old": Reason(
            "Kubernetes {version} is older than {oldest}, on which the release runs",
            "upgrade the cluster, or name an older release with --version",
        ),
        "release_pending": Reason(
            "the release svc-core is {status} since {since}: another installation runs, or was cut off",
            "wait for it; after {timeout} the same command with --upgrade goes on",
        ),
        "release_pending_install": Reason(
            "the first installation of svc-core was cut off at {since}",
            "remove what there is of it: helm uninstall svc-core --namespace {namespace} --no-hooks",
        ),
        "release_uninstalling": Reason(
            "the release svc-core is being uninstalled since {since}",
            "wait for it, or run helm uninstall svc-core --namespace {namespace} again",
        ),
        "cluster_not_ready": Reason(
            "nothing was changed: {cluster} is not ready for an installation", "svc check --pre shows all checks"
        ),
        "release_unreadable": Reason(
            "the release svc-core cannot be read: {defect}", "look at helm status svc-core --namespace {namespace}"
        ),
    }
