"""``svc license info``: reads the file, verifies it, and prints the report or the document."""

from __future__ import annotations

from svc.cli.documents import document_text, read_file
from svc.cli.globals import Invocation
from svc.cli.license.reading import refusal, warn_of_test_vendor
from svc.cli.license.report import license_document, license_report, unverified_document, unverified_report
from svc.envelope.errors import EnvelopeError
from svc.license.armour import MAX_FILE
from svc.license.states import assess, refused
from svc.license.vendors import pinned_keys
from svc.license.verification import read_unverified, verify_license


def run_info(path: str, output: str, invocation: Invocation) -> int:
    """
    Carry out ``svc license info``; returns the exit status 0.

    Raises:
        CommandFailed: the license was refused; what could be read of it has been printed.
        FileUnreadable: there is no such file.
    """
    console, now = invocation.console, invocation.now()
    data = read_file(path, MAX_FILE)
    try:
        verified = verify_license(data, pinned_keys())
    except EnvelopeError as error:
        unverified = read_unverified(data)
        assessment = refused(error)
        if output != "text":
            console.write_text(document_text(unverified_document(unverified, assessment, now), output))
        elif unverified.text is not None:
            console.write_text(str(unverified_report(unverified, assessment, now)))
        raise refusal(error) from error
    assessment = assess(verified, now)
    if output == "text":
        console.write_text(str(license_report(verified, assessment, now)))
    else:
        console.write_text(document_text(license_document(verified, assessment, now), output))
    warn_of_test_vendor(verified, console)
    return 0
