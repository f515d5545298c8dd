"""
The federation socket: ``GET /v1/federation``, ``GET /v1/bootstrap-package`` and ``POST /v1/import``.

Who may connect may add roots of trust: root, and the user of the authority.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from twisted.protocols.policies import WrappingFactory
from twisted.web.http import Request as BareRequest
from twisted.web.resource import Resource

from svc.authority.attestation import CallingProcess
from svc.authority.federating import Federating
from svc.authority.pqcallers import UnixCaller
from svc.authority.report import AuthorityLog
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.errors import SvcError
from svc.pages.callers import BodyRequest, Caller, Folder, caller_of, caller_site, error_status, send_json
from svc.strictjson import dumps

#: Administrators; one command is one connection.
MAX_CONNECTIONS: Final = 16


class CallerNotOwner(SvcError):
    """the user {uid} may not federate this trust domain"""

    reason = "caller_refused"
    http_status = 403
    hint = "root and the user of svc-authority may"


class PackageRequest(BodyRequest):
    """A request whose body is at most as large as a package; one octet more is for the parser to refuse."""

    limit = MAX_ENVELOPE + 1


class _Endpoint(Resource):
    """A path that answers root and the own user."""

    isLeaf = True

    def __init__(self, report: AuthorityLog, answer: Callable[[PackageRequest], bytes], *, post: bool = False) -> None:
        super().__init__()
        self._report = report
        self._answer = answer
        self.allowedMethods = (b"POST",) if post else (b"GET", b"HEAD")
        setattr(self, "render_POST" if post else "render_GET", self._render)

    def _render(self, request: PackageRequest) -> bytes:
        caller: UnixCaller = caller_of(request)
        try:
            caller.identities()
            if request.too_large:
                raise EnvelopeError("too_large", size=f"more than {MAX_ENVELOPE}", limit=MAX_ENVELOPE)
            return send_json(request, 200, self._answer(request))
        except SvcError as error:
            self._report.federation_refused(error, caller.share)
            reason = getattr(error, "detail_reason", error.reason)
            body = dumps({"reason": reason, "message": str(error), "hint": error.hint})
            return send_json(request, error_status(error), body)


def federation_site(federating: Federating, report: AuthorityLog, reactor: Any) -> WrappingFactory:
    """The HTTP site of the socket."""

    def refused(error: SvcError, caller: Caller | None) -> None:
        report.federation_refused(error, None if caller is None else caller.share)

    def take(request: PackageRequest) -> bytes:
        return federating.import_package(
            request.body.getvalue(),
            expected=_parameter(request, b"expect"),
            rebootstrap=_parameter(request, b"rebootstrap") == "1",
            force=_parameter(request, b"force") == "1",
        )

    version, root = Folder(), Folder()
    root.putChild(b"v1", version)
    version.putChild(b"federation", _Endpoint(report, lambda _request: dumps(federating.info())))
    version.putChild(b"bootstrap-package", _Endpoint(report, lambda _request: federating.export()))
    version.putChild(b"import", _Endpoint(report, take, post=True))
    identify = partial(UnixCaller, attest=_owner)
    return caller_site(root, refused, identify, reactor, connections=MAX_CONNECTIONS, request=PackageRequest)


def _owner(process: CallingProcess) -> None:
    uid = process.observe().uid
    if uid not in (0, os.geteuid()):
        raise CallerNotOwner(uid=uid)


def _parameter(request: BareRequest, name: bytes) -> str:
    values: Sequence[bytes] = (request.args or {}).get(name, [b""])
    return values[-1].decode("utf-8", "replace")
