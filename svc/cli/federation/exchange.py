"""``svc federation export``, ``import`` and ``info``: what is the same for an authority and for a cluster."""

from __future__ import annotations

from typing import Final

from svc.cli.documents import document_text
from svc.cli.federation.packagefile import failed, read_package, write_package
from svc.cli.federation.side import ImportRequest, Side, parse_endpoint
from svc.cli.globals import Invocation
from svc.envelope.claims import utc_seconds
from svc.envelope.errors import EnvelopeError
from svc.federation.importing import check_expected
from svc.federation.package import VerifiedPackage
from svc.federation.reference import ExpectedPeer

#: Results where the pinned roots say that the package is the peer's.
_AUTHENTICATED: Final = ("renewed", "unchanged")
_NOT_COMPARED: Final = (
    "no fingerprint was expected: that this package is the peer's rests on how the file came here; compare the digits"
    " above with those that the peer's administrator reads aloud"
)

_NO_ENDPOINT: Final = (
    "the reference does not say where the peer is reached, so that svc federation connect refuses it: name the endpoint"
    " with --endpoint-host"
)


def run_export(side: Side, path: str, invocation: Invocation) -> int:
    """Write the package of a side to a file and print what was written; returns the exit status 0."""
    exported = side.export()
    write_package(path, exported.package)
    content = exported.package.content
    document = {
        "trustDomain": content.trust_domain.name,
        "fingerprint": content.fingerprint.to_members(),
        "reference": str(exported.package.reference),
        "expiresAt": utc_seconds(content.expires),
        **exported.remarks,
        "file": path,
    }
    invocation.console.write_text(document_text(document, "yaml"))
    return 0


def run_import(
    side: Side,
    path: str,
    invocation: Invocation,
    *,
    expected: str,
    endpoint: str,
    rebootstrap: bool,
    force: bool,
) -> int:
    """
    Verify a package and let a side trust it; returns the exit status 0.

    Args:
        expected: the text of ``--expect-fingerprint``, empty for none.
        endpoint: the text of ``--m2m-endpoint``, empty for none.
        rebootstrap: whether a relationship that does not work may be replaced.
        force: whether any may be.

    Raises:
        CommandFailed: the package is not valid, or not the expected one; the side was not asked.
        SvcError: it is refused there.
    """
    peer = ExpectedPeer.parse(expected) if expected else None
    hint = parse_endpoint(endpoint) if endpoint else None
    try:
        package = read_package(path).verify()
        if peer is not None:
            check_expected(package, peer)
        package.check_time(invocation.now())
    except EnvelopeError as error:
        raise failed(error) from error
    if hint is not None:
        package = VerifiedPackage(package.package.with_endpoint(hint))
    done = side.import_package(ImportRequest(package, expected, rebootstrap, force))
    content, known = package.content, package.package.endpoint
    document = {
        "trustDomain": content.trust_domain.name,
        "fingerprint": content.fingerprint.to_members(),
        "sequence": content.sequence,
        "expiresAt": utc_seconds(content.expires),
        "m2mEndpoint": None if known is None else str(known),
        **done,
    }
    invocation.console.write_text(document_text(document, "yaml"))
    if peer is None and done.get("result") not in _AUTHENTICATED:
        invocation.console.warn(_NOT_COMPARED)
    return 0


def run_info(side: Side, output: str, invocation: Invocation) -> int:
    """Print the federation reference of a side, or its state as a document; returns the exit status 0."""
    found = side.info()
    text = f"{found['reference']}\n" if output == "text" else document_text(found, output)
    invocation.console.write_text(text)
    if "cluster" in found and output == "text":
        invocation.console.notice(f"the cluster is {found['cluster']}")
    if "cluster" in found and found["m2mEndpoint"] is None:
        invocation.console.warn(_NO_ENDPOINT)
    return 0
