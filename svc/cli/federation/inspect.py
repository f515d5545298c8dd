"""``svc federation inspect bootstrap-package``: reads the file, prints the document, and verifies the signatures."""

from __future__ import annotations

from svc.cli.documents import document_text
from svc.cli.federation.document import package_document
from svc.cli.federation.packagefile import failed, read_package
from svc.cli.globals import Invocation
from svc.envelope.errors import EnvelopeError


def run_inspect(path: str, full: bool, invocation: Invocation) -> int:
    """
    Carry out the command; returns the exit status 0.

    Raises:
        CommandFailed: the file is no bootstrap package, or a signature is not valid; then it has been printed.
        FileUnreadable: there is no such file.
    """
    try:
        package = read_package(path)
        invocation.console.write_text(document_text(package_document(package, invocation.now(), full=full), "yaml"))
        package.verify()
    except EnvelopeError as error:
        raise failed(error) from error
    return 0
