"""
The errors of the command line: arguments, standard streams, local files and the network.

What a verification refuses is in the packages that verify.
"""

from __future__ import annotations

from svc.client.errors import ExchangeFailed, ServerUnexpected
from svc.errors import Reason, SvcError


class CliError(SvcError):
    """the command failed"""

    reason = "failed"
    reasons = {
        "identity_not_pinned": Reason(
            "no server identity was named, and --require-pinned-id insists on one",
            "name it with --expect-id or SVC_EXPECT_ID",
        ),
        "policy_cases_missing": Reason(
            "the files have no table of cases",
            "write a document of the kind SvcPolicyTest, beside the policies or in a file of its own",
        ),
        "artifacts_refused": Reason(
            "{failed} of {total} artifacts failed the verification", "the lines above name each with its reason"
        ),
        "password_unusable": Reason(
            "this cannot be the password: {defect}", "give one line that is not empty, twice the same on a terminal"
        ),
        "dead_letter_missing": Reason(
            "there is no dead letter {numbers}; nothing was changed", "svc mqtt dead-letters list shows their numbers"
        ),
        "dead_letters_wait": Reason(
            "{left} of {total} dead letters are not {done} yet",
            "they stay marked; svc.proxy.buffer.dead_letter_kept in the log of the proxy says what keeps them",
        ),
        "data_too_large": Reason(
            "the body of the request is larger than {limit} octets, which {path} exceeds", "send it in several requests"
        ),
        "kubernetes_missing": Reason(
            "the client of Kubernetes is not installed: there is no module {module}",
            "install it with pip install 'svc[kubernetes]', or use kubectl",
        ),
        "license_status_missing": Reason(
            "the cluster has no license status: {detail}",
            "the manager writes it: is it installed, and does it run? kubectl get pods -n {namespace}",
        ),
        "license_status_stale": Reason(
            "the license status is not current: it was written {age}, and the manager writes it each minute",
            "look at the log of the manager, and at the clock of this machine",
        ),
        "manager_away": Reason(
            "no manager runs, and the license status is the last one that was written: the Lease {lease} {defect}",
            "start the manager, or look why it ends: kubectl get pods -n {namespace}",
        ),
        "objects_unreadable": Reason("the objects cannot be read: {detail}", "nothing was applied"),
        "config_not_written": Reason(
            "{path} cannot be written: {detail}", "it is made in the home folder of the user, with mode 0600"
        ),
        "kube_context_missing": Reason("the kubeconfig has no context {name}", "the contexts there are: {known}"),
        "bundle_malformed": Reason(
            "{path} is no usable bundle file: {defect}",
            "a trust bundle holds CA certificates as concatenated DER, PEM, or a SPIFFE bundle in JSON",
        ),
        "bundle_needs_trust_domain": Reason(
            "{path} does not say whose roots it holds", "name the trust domain with --trust-domain"
        ),
    }


class UsageRefused(CliError):
    """{problem}"""

    reason = "usage"
    hint = "{suggestion}"

    def __init__(self, problem: str, suggestion: str = "") -> None:
        super().__init__(problem=problem, suggestion=suggestion)


class OutputFailed(CliError):
    """cannot write to standard output: {detail}"""

    reason = "output_failed"
    reasons = {"output_closed": Reason("standard output was closed before everything was written")}


class StatusUnavailable(CliError):
    """the status of {address} is not available"""

    reason = "status_unavailable"
    hint = "name the adminAddr of a proxy, a broker or an authority"
    reasons = {
        "status_late": Reason(
            "{address} has not answered within {seconds} s",
            "the process is stopped or overloaded, or another service listens there",
        ),
        "status_foreign": Reason(
            "what listens at {address} shows no status of a proxy, a broker or an authority: {defect}",
            "name the adminAddr of one of them; an older version has no /status",
        ),
        "status_absent": Reason(
            "no proxy, broker or authority answers at {addresses}",
            "start one, or name its adminAddr: svc status HOST:PORT",
        ),
        "admin_address_missing": Reason(
            "{path} names no address for operators: adminAddr is {value}",
            "set adminAddr there; without --config the default addresses are tried",
        ),
    }


class StatusUnreachable(StatusUnavailable):
    """{address} cannot be reached: {cause}"""

    reason = "status_unreachable"
    hint = "is the process running, and is this its adminAddr?"


class FileUnreadable(CliError):
    """{path} cannot be read: {detail}"""

    reason = "file_unreadable"
    hint = "check the path and its permissions"


class PackageNotWritten(CliError):
    """{path} cannot be written: {detail}"""

    reason = "package_not_written"
    hint = "check the path, its permissions and the space on the disk"
    reasons = {
        "package_not_replaced": Reason(
            "{path} is not replaced: it is {defect}", "name another file, or move that one away"
        ),
    }


class AuthorityUnreachable(CliError):
    """the authority at {address} cannot be reached: {detail}"""

    reason = "authority_unreachable"
    hint = "is it the federation.socket of an svc-authority that runs here? only root and the user of it may connect"
    reasons = {
        "authority_foreign": Reason(
            "what listens at {address} is no federation socket of an authority: it answered with status {status}",
            "name the federation.socket of its configuration, not another socket",
        ),
    }


class AuthorityRefused(CliError):
    """{message}"""

    reason = "authority_refused"
    hint = "{advice}"
    detail_reason: str


class ClusterNotFederated(CliError):
    """the cluster has no bootstrap package: {detail}"""

    reason = "cluster_not_federated"
    hint = "the manager makes it: is cluster.federation in its configuration, and does it run? kubectl get svcclusters"
    reasons = {
        "cluster_status_invalid": Reason(
            "the status of the SvcCluster is not usable: {detail}",
            "it is not as this version of the manager writes it: look at kubectl get svcclusters -o yaml",
        ),
        "endpoint_not_found": Reason(
            "no NodePort of the cluster was found by which peers reach its manager",
            "name the endpoint: --endpoint-host HOST:PORT, such as that of a load balancer",
        ),
    }


class FederationRefused(CliError):
    """these sides cannot be federated"""

    reason = "federation_refused"
    hint = "the reason says what to change"
    reasons = {
        "endpoint_without_port": Reason(
            "--endpoint-host {host} has no port, and no NodePort of the cluster was found",
            "name both: --endpoint-host {host}:PORT",
        ),
        "reference_without_endpoint": Reason(
            "nothing says where the manager of {trust_domain} is reached",
            "svc federation info --endpoint-host HOST:PORT prints a reference that does, on the side of that cluster",
        ),
        "same_cluster": Reason(
            "both sides are the same cluster: the namespace kube-system of both has the UID {uid}",
            "name two clusters: --kubeconfig and --context number n belong together",
        ),
        "same_trust_domain": Reason(
            "both sides have the trust domain {trust_domain}",
            "only trust domains that differ federate: name the peer, or install one of both with another trust domain",
        ),
        "name_taken": Reason(
            "the SvcForeignCluster {name} is that of the trust domain {other}, not of {trust_domain}",
            "give another name: svc federation import bootstrap-package --name",
        ),
        "name_unusable": Reason(
            '"{name}" cannot be the name of a SvcForeignCluster',
            "give one of a-z, 0-9, - and ., at most 253 characters: svc federation import bootstrap-package --name",
        ),
        "peer_named_otherwise": Reason(
            "the trust domain {trust_domain} has a SvcForeignCluster already, {name}",
            "a trust domain has one: leave --name out, or delete that object first",
        ),
        "live_package_differs": Reason(
            "the manager serves a package of {found}, and the SvcCluster has {expected}",
            "the manager has new roots and writes its status soon, or something else answers there: try again",
        ),
        "tunnel_failed": Reason(
            "the package cannot be read through kubectl port-forward: {detail}",
            "does the manager run, and may you create pods/portforward in its namespace?",
        ),
    }


class Interrupted(CliError):
    """interrupted"""

    reason = "interrupted"


class InternalError(CliError):
    """internal error: {kind}: {detail}"""

    reason = "internal_error"
    hint = "this is a mistake in svc; --log-stacktrace shows where"


class NetworkError(ExchangeFailed):
    """the exchange with {server} failed"""

    reasons = {
        "name_unresolved": Reason("the name {host} cannot be resolved", "check the spelling, and that DNS works here"),
        "connection_refused": Reason(
            "{server} refuses the connection", "is the service running, and is the port right?"
        ),
        "connect_failed": Reason(
            "no connection to {server}: {detail}", "check the address, the route to it and any firewall in between"
        ),
        "connect_timeout": Reason(
            "no connection to {server} within {seconds} s",
            "check the address, the route to it and any firewall in between",
        ),
        "handshake_timeout": Reason(
            "the TLS handshake with {address} was not complete after {seconds} s",
            "something listens there and does not answer TLS: is it the port of an https listener, "
            "and is svc-proxy stuck?",
        ),
        "handshake_failed": Reason(
            "the TLS handshake with {address} failed: {detail}",
            "{server} must use mutual TLS 1.3 with SPIFFE identities, and accept ours",
        ),
        "svid_invalid": Reason(
            "the SVID of {address} is not valid: {cause}",
            "the server's trust domain must be ours or federated, its certificate current, and both clocks right",
        ),
        "body_too_large": Reason(
            "the body of the answer is larger than {limit} octets", "raise --max-body, which is 1GiB unless given"
        ),
        "spool_failed": Reason(
            "the answer cannot be kept back until it is verified: {detail}",
            "free some space in the folder for temporary files (TMPDIR)",
        ),
        "spool_missing": Reason(
            "more than 1 MiB of an answer is kept in a file until it is verified, and no folder takes one: {detail}",
            "set TMPDIR to a folder that this user can write, in Kubernetes an emptyDir",
        ),
        "max_time": Reason(
            "the exchange was not complete within {seconds} s: {missing}", "raise --max-time, or leave it out"
        ),
    }


class ServerIdentityUnexpected(ServerUnexpected):
    """the server at {address} is {spiffe_id}; expected {expected}"""

    hint = "is the address right? if this server is the one you mean, correct --expect-id or SVC_EXPECT_ID"


class ServerTrustDomainUnexpected(ServerIdentityUnexpected):
    """the server at {address} is {spiffe_id}; expected any workload of the own trust domain: {expected}"""

    hint = "a server of another trust domain is accepted only where --expect-id names it: --expect-id {spiffe_id}"


class CommandFailed(Exception):
    """Carries an error to ``main``, with the exit status and further lines that belong to it."""

    def __init__(self, error: SvcError, status: int = 1, remarks: tuple[str, ...] = ()) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.remarks = remarks
