"""Every identifier of the product: on the wire, in files and in the environment."""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "svc.internal"

# Audiences of the signed artifacts.
AUDIENCE_STATEMENT: Final = f"https://{DOMAIN}/workload-statement"
AUDIENCE_RECEIPT: Final = f"https://{DOMAIN}/receipt"
AUDIENCE_BATCH: Final = f"https://{DOMAIN}/receipt-batch"

# HTTP headers; all of them are reserved for the proxy.
HEADER_PREFIX: Final = "svc-"
HEADER_WORKLOAD_ID: Final = "Svc-Workload-ID"
HEADER_RECEIPT_LOCATION: Final = "Svc-Receipt-Location"
HEADER_LEVEL: Final = "Svc-Notarization-Level"
HEADER_NONCE: Final = "Svc-Notary-Nonce"
HEADER_FORWARDED_CLIENT: Final = "X-Forwarded-Client-Cert"
HEADER_FORWARDED_PROTO: Final = "X-Forwarded-Proto"

# Notary endpoints.
NOTARY_PATH: Final = "/.well-known/svc-notary"
MEDIA_TYPE_ENVELOPE: Final = "application/jose+json"
MEDIA_TYPE_BATCHED_RECEIPT: Final = "application/vnd.svc.receipt+json"
MEDIA_TYPE_PROBLEM: Final = "application/problem+json"

# Topics of artifacts, below a prefix.
ARTIFACT_PREFIX: Final = "$.svc"

#: How the client identifiers of the proxy's own sessions with brokers begin.
MQTT_CLIENT_PREFIX: Final = "svc-artifacts-"
# User properties of MQTT 5.0; all of them are reserved for the proxy.
PROPERTY_PREFIX: Final = "svc-"
PROPERTY_NONCE: Final = "svc-nonce"
PROPERTY_RECEIPT_ID: Final = "svc-receipt-id"

# Types of signed artifacts (JOSE header ``typ``).
TYPE_STATEMENT: Final = "svc-statement+jws"
TYPE_RECEIPT: Final = "svc-receipt+jws"
TYPE_BATCH: Final = "svc-batch+jws"
TYPE_BOOTSTRAP: Final = "svc-bootstrap+jws"
TYPE_LICENSE: Final = "svc-license+jws"
TYPE_RELEASE: Final = "svc-release+jws"
TYPE_PQ_PROOF: Final = "svc-pq-proof+jws"

# Labels and annotations of workloads.
LABEL_COMPARTMENT: Final = f"{DOMAIN}/compartment"
ANNOTATION_LEVEL: Final = f"mls.{DOMAIN}/level"
ANNOTATION_COMPARTMENT: Final = f"mls.{DOMAIN}/compartment"

#: Who has this permission may cross compartments: a verb on a resource of the domain that no object has.
VERB_OVERRIDE: Final = "override"
RESOURCE_COMPARTMENTS: Final = "compartments"

# Groups of users who work in a compartment.
GROUP_COUNTRY: Final = "svc:country:"
GROUP_SENSITIVITY: Final = "svc:sensitivity:"
GROUP_COMPARTMENT: Final = "svc:compartment:"

#: Non-critical X.509 extension of a post-quantum leaf: SHA-256 of the SVID's SubjectPublicKeyInfo.
OID_SVID_BINDING: Final = "2.25.173571044063296619485549656756435458336"

# The Workload API.
DEFAULT_SPIFFE_SOCKET: Final = "unix:///spiffe-workload-api/agent.sock"
WORKLOAD_API_HEADER: Final = "workload.spiffe.io"
PQ_BUNDLE_FILE: Final = "pq-bundle.json"
BUNDLE_ARCHIVE_FILE: Final = "bundle-archive.json"

# Kubernetes.
DEFAULT_NAMESPACE: Final = "svc-system"
#: The manager, and the Lease in its namespace.
MANAGER: Final = "svc-manager"
#: How the identifiers of the manager's registration entries begin; those of a registrar begin otherwise.
ENTRY_OWNER: Final = f"{MANAGER}."
#: The authority, and the Secret with its private keys.
AUTHORITY: Final = "svc-authority"
AUTHORITY_KEYS_SECRET: Final = "svc-authority-keys"  # noqa: S105 - a name
#: Whose data is in the volume of the SPIRE server.
ANNOTATION_TRUST_DOMAIN: Final = f"{DOMAIN}/trust-domain"
#: The Secret with the federation roots; the Service by which peers reach the manager, and its SPIFFE ID there.
FEDERATION_SECRET: Final = "svc-federation-keys"  # noqa: S105 - a name
M2M_SERVICE: Final = "svc-m2m"
M2M_PATH: Final = "/svc/m2m"
#: The path of the manager's SPIFFE ID, by which workloads know it, and where they get policies of it.
MANAGER_PATH: Final = "/svc/manager"
POLICY_PATH: Final = "/v1/policy"
FOREIGN_PQ_PATH: Final = "/v1/foreign-pq-bundle"
#: Octets of the post-quantum roots of all peers together; with the own ones they fit into a file that verifiers read.
MAX_FOREIGN_PQ: Final = 3 * 1024 * 1024
#: Where workloads get statements of it, and the audience of the service account tokens by which they prove their pod.
STATEMENT_PATH: Final = "/v1/statement"
AUDIENCE_POD_TOKEN: Final = MANAGER
#: The ConfigMap and the Secret with the configuration of the manager, in its namespace.
MANAGER_CONFIG: Final = "svc-manager-config"
#: Secrets with a license: their type, the label by which the manager finds them, the key of the file, and their names.
LICENSE_SECRET_TYPE: Final = f"{DOMAIN}/license"
LABEL_LICENSE: Final = f"{DOMAIN}/license"
LICENSE_SECRET_KEY: Final = "license.svc"  # noqa: S105 - a name
LICENSE_SECRET_PREFIX: Final = "svc-license-"  # noqa: S105 - a name

#: The CSI driver of ``svc-agent``, and the attribute of a volume that names one of its folders.
CSI_DRIVER: Final = f"csi.{DOMAIN}"
CSI_SOURCE_ATTRIBUTE: Final = "source"

# Injection of the proxy into pods.
WEBHOOK_CONFIGURATION: Final = "svc-injection"
CONNECTIONS_CONFIGURATION: Final = "svc-compartments"
WEBHOOK_SECRET: Final = "svc-webhook-ca"  # noqa: S105 - a name
#: Namespaces that are enabled have it with this value: their service accounts get identities, their pods the proxy.
LABEL_INJECTION: Final = f"{DOMAIN}/injection"
INJECTION_ENABLED: Final = "enabled"
ANNOTATION_INJECT: Final = f"{DOMAIN}/inject"
ANNOTATION_PORTS: Final = f"{DOMAIN}/ports"
#: Pods into which the proxy was injected have it with the value ``true``.
LABEL_INJECTED: Final = f"{DOMAIN}/proxy-injected"
PROXY_CONTAINER: Final = "svc-proxy"
#: Names of ports have at most 15 characters.
METRICS_PORT: Final = "svc-metrics"
#: The ConfigMap with the policies that a namespace has written for itself, and the one that the manager compiles.
POLICIES_CONFIG_MAP: Final = "svc-policies"
COMPILED_CONFIG_MAP: Final = "svc-policies-compiled"
COMPILED_FILE: Final = "policies.yaml"
#: The configuration of the webhook that reviews policies.
POLICIES_CONFIGURATION: Final = "svc-policies"

#: The NetworkPolicy for the metrics of injected proxies that the manager keeps in enabled namespaces, and the label by
#: whose value, the manager, it is told from a policy of the user.
NETWORK_POLICY: Final = "svc-proxy-metrics"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

# Files of the wrapper commands.
DEFAULT_CONTEXTS: Final = "~/.svc/config.yaml"
DEFAULT_AUDIT_LOG: Final = "~/.svc/audit.log"

# Files of the agent.
DEFAULT_AGENT_CONFIG: Final = "/etc/svc/agent.yaml"

# Files of the manager.
DEFAULT_MANAGER_CONFIG: Final = "/etc/svc/manager.yaml"

# Files of the registrar.
DEFAULT_REGISTRAR_CONFIG: Final = "/etc/svc/registrar.yaml"

# Files of the proxy.
DEFAULT_PROXY_CONFIG: Final = "/etc/svc/proxy.yaml"
DEFAULT_NOTARY_DATABASE: Final = "/var/lib/svc/notary.db"
DEFAULT_MQTT_BUFFER: Final = "/var/lib/svc/mqtt-buffer.db"

# Default ports.
PORT_WEBHOOK: Final = 9443
PORT_M2M: Final = 9445
PORT_CONTROL_PLANE: Final = 9446
#: Of the Service of peers, and of a peer's endpoint that has none: that of HTTPS.
PORT_M2M_SERVICE: Final = 443
PORT_MANAGER_METRICS: Final = 9090
PORT_MANAGER_ADMIN: Final = 9900
PORT_AGENT_METRICS: Final = 9091
PORT_AGENT_ADMIN: Final = 9901
PORT_PROXY_METRICS: Final = 9092
PORT_PROXY_ADMIN: Final = 9902
PORT_BROKER_METRICS: Final = 9093
PORT_BROKER_ADMIN: Final = 9903
PORT_AUTHORITY_ADMIN: Final = 9904
PORT_REGISTRAR_ADMIN: Final = 9905
PORT_SPIRE_SERVER_METRICS: Final = 9998
PORT_SPIRE_AGENT_METRICS: Final = 9988
#: The probes of processes in pods.
PORT_PROBES: Final = 9910

# Environment variables.
ENV_CONFIG: Final = "SVC_CONFIG"
ENV_PQ_BUNDLE: Final = "SVC_PQ_BUNDLE"
ENV_PROFILE: Final = "SVC_PROFILE"
ENV_ISSUERS: Final = "SVC_ISSUERS"
ENV_EXPECT_ID: Final = "SVC_EXPECT_ID"
ENV_DETAILED_EXIT_CODES: Final = "SVC_DETAILED_EXIT_CODES"
ENV_NO_WARNINGS: Final = "SVC_NO_WARNINGS"
ENV_DEBUG: Final = "SVC_DEBUG"
ENV_ARTIFACT_PREFIX: Final = "SVC_ARTIFACT_PREFIX"
ENV_MQTT_USERNAME: Final = "SVC_MQTT_USERNAME"
ENV_MQTT_PASSWORD: Final = "SVC_MQTT_PASSWORD"  # noqa: S105 - the name of a variable
ENV_DEPLOYMENT_USERNAME: Final = "SVC_CUSTOMER_DEPLOYMENT_USERNAME"
ENV_DEPLOYMENT_PASSWORD: Final = "SVC_CUSTOMER_DEPLOYMENT_PASSWORD"  # noqa: S105 - the name of a variable
ENV_COUNTRY: Final = "SVC_COUNTRY"
ENV_SENSITIVITY: Final = "SVC_SENSITIVITY"
ENV_COMPARTMENT: Final = "SVC_COMPARTMENT"
ENV_KUBECTL: Final = "SVC_KUBECTL"
