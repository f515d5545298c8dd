"""The file of a bootstrap package: read for import and inspection, and written by export without losing another."""

from __future__ import annotations

import os
import stat
from typing import Final

from svc.cli.documents import read_file
from svc.cli.errors import CommandFailed, FileUnreadable, PackageNotWritten
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError, Malformed
from svc.federation.package import BootstrapPackage
from svc.identity import TrustDomain
from svc.workload.files import write_atomically

RIGHT_FILE: Final = "is it the bootstrap package that the other side has sent?"


def failed(error: EnvelopeError) -> CommandFailed:
    """The failure of a command because of a package; one that cannot be read at all may be the wrong file."""
    return CommandFailed(error, remarks=(RIGHT_FILE,) if isinstance(error, Malformed) else ())


def read_package(path: str) -> BootstrapPackage:
    """
    Read a package, which is not verified by that.

    Raises:
        EnvelopeError: the file is no bootstrap package.
        FileUnreadable: it is not there, or may not be read.
    """
    return BootstrapPackage.parse(read_file(path, MAX_ENVELOPE))


def write_package(path: str, package: BootstrapPackage) -> None:
    """
    Write a package atomically; what is there is replaced only where it is a package of the same trust domain.

    Raises:
        PackageNotWritten: it is something else, or the file cannot be written; then it is as it was.
    """
    _check_replaceable(path, package.content.trust_domain)
    try:
        write_atomically(path, package.serialize())
    except OSError as error:
        raise PackageNotWritten(path=path, detail=(error.strerror or str(error)).lower()) from error


def _check_replaceable(path: str, trust_domain: TrustDomain) -> None:
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PackageNotWritten(path=path, detail=(error.strerror or str(error)).lower()) from error
    if not regular:
        raise PackageNotWritten("package_not_replaced", path=path, defect="not a regular file")
    try:
        found = read_package(path).content.trust_domain
    except (EnvelopeError, FileUnreadable) as error:
        raise PackageNotWritten("package_not_replaced", path=path, defect="no bootstrap package") from error
    if found != trust_domain:
        defect = f"the package of {found}, and this one is of {trust_domain}"
        raise PackageNotWritten("package_not_replaced", path=path, defect=defect)
