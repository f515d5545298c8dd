"""
The peers of an authority: trust domains whose bootstrap packages are pinned, one file for each beside the keys.

A file is the package itself. Without it the trust domain is a peer no longer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Final

from svc.authority.keyfile import KeyFile
from svc.envelope.errors import EnvelopeError
from svc.errors import Reason, SvcError
from svc.federation.continuity import Continuity
from svc.federation.importing import check_import
from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.reference import ExpectedPeer
from svc.federation.succession import check_follows
from svc.folders import make_folder
from svc.identity import TrustDomain
from svc.workload.files import write_atomically

FOLDER: Final = "peers"
MAX_PEERS: Final = 256
#: The longest name of a file has 255 octets, and a temporary one is longer than that of the package.
_MAX_NAME: Final = 200


class PeerFileRefused(SvcError):
    """the pinned package in {path} is not used: {defect}"""

    reason = "peer_file_refused"
    hint = "restore the file, or remove it, which ends the federation with that trust domain"


class PeerRefused(SvcError):
    """{trust_domain} cannot become a peer"""

    reason = "peer_refused"
    http_status = 409
    hint = "look at the peers: svc federation info -o yaml"
    reasons = {
        "federated_by_files": Reason(
            "the configuration federates with {trust_domain} by files already",
            "take it out of federatesWith and restart, or keep to the files",
        ),
        "too_many_peers": Reason(
            "{trust_domain} cannot become a peer: there are {limit} already", "remove the file of another one"
        ),
    }


class PeerNotStored(SvcError):
    """the package cannot be written to {path}: {what}; nothing has changed"""

    reason = "peer_not_stored"
    http_status = 503
    hint = "check the folder, its permissions and its free space"


class ImportResult(Enum):
    """What an import did; the value is the word in output and log."""

    PINNED = "pinned"
    RENEWED = "renewed"
    REBOOTSTRAPPED = "rebootstrapped"
    UNCHANGED = "unchanged"


def continuity(pinned: VerifiedPackage, now: datetime) -> Continuity:
    """The state of a relationship that files alone renew: it works until the pinned package ends."""
    return Continuity.EXPIRED if now >= pinned.content.expires else Continuity.WORKING


def judge_import(
    pinned: VerifiedPackage | None,
    found: VerifiedPackage,
    *,
    own: TrustDomain,
    now: datetime,
    expected: ExpectedPeer | None,
    rebootstrap: bool,
    force: bool,
) -> ImportResult:
    """
    Judge a package that is to be pinned.

    Args:
        pinned: that of the same trust domain; None where it is no peer yet.
        found: the package.
        own: the own trust domain.
        now: an aware time.
        expected: what the administrator was told; None where the administrator has vetted the file.
        rebootstrap: whether a package may be replaced that has ended.
        force: whether any may be.

    Raises:
        PackageRefused: as :func:`svc.federation.importing.check_import`, or ``package_rolled_back``.
    """
    check_import(found, own=own, now=now, expected=expected)
    if pinned is None:
        return ImportResult.PINNED
    try:
        check_follows(pinned, found, now)
    except EnvelopeError as error:
        if error.reason == "package_rolled_back" and not (rebootstrap or force):
            raise
        check_import(found, own=own, now=now, existing=continuity(pinned, now), rebootstrap=rebootstrap, force=force)
        return ImportResult.REBOOTSTRAPPED
    return ImportResult.UNCHANGED if _says(found) == _says(pinned) else ImportResult.RENEWED


class Peers:
    """
    The pinned packages.

    Args:
        file: the folder of the keys, which is open; also an attribute.
    """

    def __init__(self, file: KeyFile) -> None:
        self.file = file
        self._packages: dict[TrustDomain, VerifiedPackage] = {}

    @property
    def packages(self) -> Mapping[TrustDomain, VerifiedPackage]:
        """Those in force, by their trust domain."""
        return self._packages

    def load(self) -> None:
        """
        Read all files.

        Raises:
            PeerFileRefused: one is damaged, or has another name than its trust domain.
            KeysRefused: one can be read or written by others.
        """
        folder = Path(self.file.folder, FOLDER)
        for left in folder.glob(".*.json.*"):
            left.unlink()
        for path in sorted(folder.glob("*.json")):
            data = self.file.read(os.path.join(FOLDER, path.name))
            try:
                package = verify_package(data or b"")
            except EnvelopeError as error:
                raise PeerFileRefused(path=path, defect=str(error)) from error
            trust_domain = package.content.trust_domain
            if _name(trust_domain) != path.name:
                raise PeerFileRefused(path=path, defect=f"it is the package of {trust_domain}")
            self._packages[trust_domain] = package

    def pin(self, package: VerifiedPackage) -> None:
        """
        Store a package in place of that of the same trust domain, atomically and durably.

        Raises:
            PeerNotStored: the one before stays.
            PeerRefused: there are too many.
        """
        trust_domain = package.content.trust_domain
        if trust_domain not in self._packages and len(self._packages) >= MAX_PEERS:
            raise PeerRefused("too_many_peers", trust_domain=trust_domain, limit=MAX_PEERS)
        path = os.path.join(self.file.folder, FOLDER, _name(trust_domain))
        try:
            make_folder(os.path.dirname(path))
            write_atomically(path, package.package.serialize(), mode=0o600)
        except OSError as error:
            raise PeerNotStored(path=path, what=error.strerror or type(error).__name__) from error
        self._packages[trust_domain] = package


def _says(package: VerifiedPackage) -> tuple[object, ...]:
    """Everything but the signatures, of which one key makes many for the same octets."""
    return package.package.envelope.payload, package.package.endpoint


def _name(trust_domain: TrustDomain) -> str:
    name = trust_domain.name
    return f"{name if len(name) <= _MAX_NAME else hashlib.sha256(name.encode('ascii')).hexdigest()}.json"
