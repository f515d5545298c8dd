"""The kinds of objects that are used, as the API server names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from svc.naming import DOMAIN


@dataclass(frozen=True, slots=True)
class Kind:
    """
    A kind of object.

    Args:
        group: empty for the core group.
        plural: the name in paths, such as ``pods``.
        name: such as ``Pod``.
    """

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CONFIG_MAPS: Final = Kind("", "v1", "configmaps", "ConfigMap")
CUSTOM_RESOURCES: Final = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CSI_DRIVERS: Final = Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_NODES: Final = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment")
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
NETWORK_POLICIES: Final = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
NODES: Final = Kind("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Kind("", "v1", "pods", "Pod")
SECRETS: Final = Kind("", "v1", "secrets", "Secret")
MUTATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
SERVICES: Final = Kind("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount")
VALIDATING_WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
STATEFUL_SETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet")
STORAGE_CLASSES: Final = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
#: Made to ask a question, and kept nowhere.
TOKEN_REVIEWS: Final = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELF_ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
#: Of the cluster. Of the first two there is one each, with this name.
LICENSE_STATUSES: Final = Kind(DOMAIN, "v1alpha1", "svclicensestatuses", "SvcLicenseStatus", namespaced=False)
LICENSE_STATUS_NAME: Final = "license"
CLUSTER_POLICIES: Final = Kind(DOMAIN, "v1alpha1", "svcclusterpolicies", "SvcClusterPolicy", namespaced=False)
POLICIES: Final = Kind(DOMAIN, "v1alpha1", "svcpolicies", "SvcPolicy")
CLUSTERS: Final = Kind(DOMAIN, "v1alpha1", "svcclusters", "SvcCluster", namespaced=False)
CLUSTER_NAME: Final = "cluster"
SPIRE_INSTANCES: Final = Kind(DOMAIN, "v1alpha1", "spireinstances", "SpireInstance")
FOREIGN_CLUSTERS: Final = Kind(DOMAIN, "v1alpha1", "svcforeignclusters", "SvcForeignCluster", namespaced=False)
