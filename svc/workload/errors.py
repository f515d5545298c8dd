"""The errors of the Workload API, of files with roots, and of the PQ issuer."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class WorkloadError(SvcError):
    """the Workload API failed"""

    reason = "workload_api_error"


class SocketAddressInvalid(WorkloadError):
    """{address} is no address of a Workload API: {defect}"""

    reason = "workload_api_address"
    hint = "write unix:///absolute/path/to/agent.sock"


class CredentialsMissing(WorkloadError):
    """no SVID has arrived from {socket} yet"""

    reason = "credentials_missing"
    hint = "wait for when_ready() before you read the SVID"


class IdentityWithdrawn(CredentialsMissing):
    """the Workload API at {socket} no longer issues this process {spiffe_id}: {what}"""

    reason = "identity_withdrawn"
    hint = "make a registration entry for {spiffe_id} that matches this process; the identity then comes back by itself"


class SourceStopped(WorkloadError):
    """the source of {socket} was stopped before an SVID arrived"""

    reason = "source_stopped"


class WorkloadApiUnavailable(WorkloadError):
    """no SVID from the Workload API at {socket} within {seconds} s: {what}"""

    reason = "workload_api_unavailable"
    hint = "start svc-authority or a SPIRE agent that serves {socket}"


class WorkloadSocketMissing(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: no such file"""

    hint = "start svc-authority or a SPIRE agent that serves {socket}, or name another socket"


class WorkloadSocketDenied(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: permission denied by the file system"""

    hint = "run as a user or group that may open {socket}; svc-authority has socketMode and socketGroup for this"


class WorkloadSocketUnserved(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: no process listens on this socket"""

    hint = "the process that made the socket is gone: start it again"


class NoIdentityIssued(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: no identity issued to this process"""

    hint = "add a registration entry that matches uid, gid and executable of this process"


class NoWorkloadApi(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: another service answers there, in HTTP/1.1"""

    hint = "a PQ issuer's socket (pq.sock) belongs into notary.pqIssuer; the Workload API has a socket of its own"


class WorkloadApiSilent(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: it accepted the call and sent nothing"""

    hint = "look at the log of the process that serves {socket}"


class UpdateUnusable(WorkloadApiUnavailable):
    """no SVID from the Workload API at {socket} within {seconds} s: what it sent was refused: {what}"""

    hint = "is the clock here right? else the server at {socket} issues what does not verify to its own bundle"


class WorkloadApiLost(WorkloadError):
    """the Workload API at {socket} is unreachable since {since}: {what}"""

    reason = "workload_api_unavailable"
    hint = "the credentials in force serve until they end; start svc-authority or the SPIRE agent that serves {socket}"


class IdentityNotIssued(WorkloadApiLost):
    """the Workload API at {socket} answers since {since} that it has no identity for this process: {what}"""

    hint = NoIdentityIssued.hint


class UpdateRejected(WorkloadError):
    """an update of the Workload API was refused: {defect}"""

    reason = "update_malformed"
    defect: str


class NoOwnSvid(UpdateRejected):
    """an update of the Workload API has no SVID for this process: {defect}"""

    reason = "no_own_svid"


class StreamFailed(WorkloadError):
    """the stream of the Workload API ended with {code}: {detail}"""

    reason = "workload_api_stream"


class StreamClosed(StreamFailed):
    """the Workload API at {socket} ended the stream without an error"""


class EntryMissing(StreamFailed):
    """no registration entry matches this process (uid {uid}, gid {gid}): {socket} answered {code}, {detail}"""

    reason = "no_own_svid"
    hint = "make a registration entry that matches uid, gid and executable of this process"


class PqFileRefused(WorkloadError):
    """the PQ bundle file {path} is not used: {defect}"""

    reason = "pq_bundle_refused"
    hint = "file and folder must belong to root or to the own user and be writable by no other user"


class PqFileMissing(PqFileRefused):
    """the PQ bundle file {path} is not used: no such file"""

    reason = "pq_bundle_missing"
    hint = "svc-authority writes it beside its socket; name another one with --pq-bundle or SVC_PQ_BUNDLE"


class PqFileMalformed(PqFileRefused):
    """the PQ bundle file {path} is not used: {defect}"""

    reason = "malformed"
    hint = "let the authority write it again"


class PqIssuerError(WorkloadError):
    """the PQ issuer at {address} gave no leaf: {what}"""

    reason = "pq_issuer_error"
    reasons = {
        "pq_issuer_unavailable": Reason(
            "the PQ issuer at {address} cannot be reached: {what}",
            "start svc-authority, let this user connect (pqIssuer.socketMode, socketGroup), or name another pqIssuer",
        ),
        "pq_issuer_timeout": Reason("the PQ issuer at {address} did not answer within {seconds} s"),
        "pq_issuer_refused": Reason("the PQ issuer at {address} refused with status {status}: {code}"),
        "pq_issuer_malformed": Reason("the answer of the PQ issuer at {address} is not usable: {defect}"),
    }


class ArchiveUnusable(WorkloadError):
    """the archive of roots {path} is not used: {defect}"""

    reason = "archive_unusable"
    hint = "move it away to start a new one; older evidence cannot be verified with the new one"
