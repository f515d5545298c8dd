"""``svc federation inspect bootstrap-package``: reads the file, prints the document, and verifies the signatures."""

from __future__ import annotations

from typing import Final

from svc.cli.documents import document_text, read_file
from svc.cli.errors import CommandFailed
from svc.cli.federation.document import package_document
from svc.cli.globals import Invocation
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError, Malformed
from svc.federation.package import BootstrapPackage

_RIGHT_FILE: Final = "is it the bootstrap package that the other side has sent?"


def run_inspect(path: str, full: bool, invocation: Invocation) -> int:
    """
    Carry out the command; returns the exit status 0.

    Raises:
        CommandFailed: the file is no bootstrap package, or a signature is not valid; then it has been printed.
        FileUnreadable: there is no such file.
    """
    data = read_file(path, MAX_ENVELOPE)
    try:
        package = BootstrapPackage.parse(data)
        invocation.console.write_text(document_text(package_document(package, invocation.now(), full=full), "yaml"))
        package.verify()
    except EnvelopeError as error:
        raise CommandFailed(error, remarks=(_RIGHT_FILE,) if isinstance(error, Malformed) else ()) from error
    return 0
