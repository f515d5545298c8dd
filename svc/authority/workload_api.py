"""The SPIFFE Workload API as a gRPC service (SPIFFE Workload API, sections 4 to 6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from spiffe._proto import workload_pb2 as messages

from svc import naming
from svc.authority.attestation import Caller, CallerNotAttested, CallingProcess
from svc.authority.bundlefile import jwks
from svc.authority.domain import IssuedSvid, LocalDomain
from svc.authority.grpc_server import calling_process, receive
from svc.authority.jwtsvid import JwtSvidInvalid, validate
from svc.authority.registration import Entry, Registry
from svc.authority.report import AuthorityLog
from svc.errors import printable
from svc.identity.bundle import X509Bundle
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed

#: The longest sleep of a stream, after which it checks the clock again, which may have been set.
MAX_SLEEP: Final = 30.0
#: The shortest sleep, whatever the clock does.
MIN_SLEEP: Final = 0.1
MAX_AUDIENCES: Final = 32
MAX_AUDIENCE: Final = 1024
NO_IDENTITY: Final = "no identity issued"


class WorkloadApi:
    """
    The service ``SpiffeWorkloadAPI``.

    ``registry`` is read at each call and each rotation. ``open_bundles`` lets callers without an entry fetch bundles.
    """

    def __init__(
        self,
        domain: LocalDomain,
        registry: Callable[[], Registry],
        now: Callable[[], datetime],
        observer: AuthorityLog,
        *,
        open_bundles: bool = False,
    ) -> None:
        self._domain = domain
        self._registry = registry
        self._now = now
        self._observer = observer
        self._open_bundles = open_bundles
        self._held: dict[object, tuple[IssuedSvid, ...]] = {}

    @property
    def held(self) -> tuple[IssuedSvid, ...]:
        """The SVIDs of all open streams."""
        return tuple(each for held in self._held.values() for each in held)

    def __mapping__(self) -> dict[str, Handler]:
        """The methods, in the form of grpclib."""
        one, many = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        methods: tuple[tuple[str, Any, Any, Any, Any], ...] = (
            ("FetchX509SVID", self._x509_svids, many, messages.X509SVIDRequest, messages.X509SVIDResponse),
            ("FetchX509Bundles", self._x509_bundles, many, messages.X509BundlesRequest, messages.X509BundlesResponse),
            ("FetchJWTSVID", self._jwt_svid, one, messages.JWTSVIDRequest, messages.JWTSVIDResponse),
            ("FetchJWTBundles", self._jwt_bundles, many, messages.JWTBundlesRequest, messages.JWTBundlesResponse),
            ("ValidateJWTSVID", self._validate, one, messages.ValidateJWTSVIDRequest, messages.ValidateJWTSVIDResponse),
        )
        return {
            f"/SpiffeWorkloadAPI/{name}": Handler(self._attested(name, method, request), cardinality, request, answer)
            for name, method, cardinality, request, answer in methods
        }

    def _attested(self, name: str, method: Any, request_type: Any) -> Any:
        """Check the header and attest the caller before a method runs, and report each refusal once."""

        async def call(stream: Any) -> None:
            caller = None
            try:
                _check_header(stream)
                process = calling_process(stream)
                caller = _observed(process)
                await method(stream, process, await receive(stream, request_type))
            except GRPCError as error:
                self._observer.refused(caller, name, error.status, error.message or "")
                raise

        return call

    async def _x509_svids(self, stream: Any, process: CallingProcess, request: Any) -> None:
        try:
            await self._watch_svids(stream, process)
        finally:
            self._held.pop(stream, None)

    async def _watch_svids(self, stream: Any, process: CallingProcess) -> None:
        held: tuple[IssuedSvid, ...] = ()
        sent = -1
        while True:
            # Attested again each time: a process that now runs another program loses its identity.
            caller, entries = self._entitled(process)
            now = self._now()
            fresh = self._domain.renew(entries, held, now)
            seen = self._domain.changes.number
            if fresh != held or seen != sent:
                await stream.send_message(self._svid_message(fresh))
            issued = tuple(each.svid.spiffe_id for each in fresh if each not in held)
            if issued:
                self._observer.granted(caller, "FetchX509SVID", issued)
            sent, held = seen, fresh
            self._held[stream] = held
            wait = min((each.renew_at - now).total_seconds() for each in held)
            await self._domain.changes.wait_beyond(seen, min(max(wait, MIN_SLEEP), MAX_SLEEP))

    def _svid_message(self, issued: tuple[IssuedSvid, ...]) -> messages.X509SVIDResponse:
        own = _der(self._domain.x509.bundle())
        return messages.X509SVIDResponse(
            svids=[
                messages.X509SVID(
                    spiffe_id=str(each.svid.spiffe_id),
                    x509_svid=b"".join(certificate.public_bytes(Encoding.DER) for certificate in each.svid.chain),
                    x509_svid_key=each.svid.private_key.private_bytes(
                        Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
                    ),
                    bundle=own,
                    hint=each.entry.hint,
                )
                for each in issued
            ],
            federated_bundles={str(name.id): _der(each.x509) for name, each in self._domain.foreign.items()},
        )

    async def _x509_bundles(self, stream: Any, process: CallingProcess, request: Any) -> None:
        def message() -> messages.X509BundlesResponse:
            bundles = self._domain.bundles()
            return messages.X509BundlesResponse(bundles={str(each.trust_domain.id): _der(each) for each in bundles})

        await self._watch_bundles(stream, process, "FetchX509Bundles", message)

    async def _jwt_bundles(self, stream: Any, process: CallingProcess, request: Any) -> None:
        def message() -> messages.JWTBundlesResponse:
            bundles = self._domain.jwt_bundles()
            return messages.JWTBundlesResponse(bundles={str(name.id): jwks(keys) for name, keys in bundles.items()})

        await self._watch_bundles(stream, process, "FetchJWTBundles", message)

    async def _watch_bundles(self, stream: Any, process: CallingProcess, name: str, message: Callable[[], Any]) -> None:
        sent = None
        while True:
            caller, entries = self._entitled(process, bundles_only=True)
            seen, fresh = self._domain.changes.number, message()
            if sent is None:
                self._observer.granted(caller, name, tuple(entry.spiffe_id for entry in entries))
            if fresh != sent:
                await stream.send_message(fresh)
                sent = fresh
            await self._domain.changes.wait_beyond(seen, MAX_SLEEP)

    async def _jwt_svid(self, stream: Any, process: CallingProcess, request: Any) -> None:
        audience = tuple(request.audience)
        if not audience or not all(0 < len(each) <= MAX_AUDIENCE for each in audience) or len(audience) > MAX_AUDIENCES:
            raise GRPCError(Status.INVALID_ARGUMENT, "the audience must name at least one and at most 32 receivers")
        caller, entries = self._entitled(process)
        if request.spiffe_id:
            wanted = _spiffe_id(request.spiffe_id)
            entries = tuple(entry for entry in entries if entry.spiffe_id == wanted)
            if not entries:
                raise GRPCError(Status.PERMISSION_DENIED, NO_IDENTITY)
        now = self._now()
        svids = [
            messages.JWTSVID(
                spiffe_id=str(entry.spiffe_id),
                svid=self._domain.issue_jwt(entry, audience, now),
                hint=entry.hint,
            )
            for entry in entries
        ]
        await stream.send_message(messages.JWTSVIDResponse(svids=svids))
        self._observer.granted(caller, "FetchJWTSVID", tuple(entry.spiffe_id for entry in entries))

    async def _validate(self, stream: Any, process: CallingProcess, request: Any) -> None:
        if not request.audience or not request.svid:
            raise GRPCError(Status.INVALID_ARGUMENT, "audience and svid must be given")
        try:
            evidence = validate(request.svid, request.audience, self._domain.jwt_bundles(), self._now())
        except JwtSvidInvalid as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error
        answer = messages.ValidateJWTSVIDResponse(spiffe_id=str(evidence.spiffe_id))
        answer.claims.update(evidence.claims)
        await stream.send_message(answer)

    def _entitled(self, process: CallingProcess, *, bundles_only: bool = False) -> tuple[Caller, tuple[Entry, ...]]:
        caller = _observed(process)
        entries = self._registry().match(caller, process.digest)
        if not entries and not (bundles_only and self._open_bundles):
            # Workload API 5.1: a client that is entitled to nothing gets PermissionDenied.
            raise GRPCError(Status.PERMISSION_DENIED, NO_IDENTITY)
        return caller, entries


def _check_header(stream: Any) -> None:
    """Workload Endpoint 3: the header prevents requests from a browser or through a confused proxy."""
    if stream.metadata.getall(naming.WORKLOAD_API_HEADER, []) != ["true"]:
        raise GRPCError(Status.INVALID_ARGUMENT, f"the security header {naming.WORKLOAD_API_HEADER}: true is missing")


def _observed(process: CallingProcess) -> Caller:
    try:
        return process.observe()
    except CallerNotAttested as error:
        raise GRPCError(Status.PERMISSION_DENIED, str(error)) from error


def _spiffe_id(text: str) -> SpiffeID:
    try:
        return SpiffeID.parse(text)
    except SpiffeIdMalformed as error:
        raise GRPCError(Status.INVALID_ARGUMENT, printable(error)) from error


def _der(bundle: X509Bundle) -> bytes:
    return b"".join(anchor.certificate.public_bytes(Encoding.DER) for anchor in bundle.anchors)
