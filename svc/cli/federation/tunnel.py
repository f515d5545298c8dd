"""
The package that the manager of a cluster serves now, through ``kubectl port-forward``.

Nothing is known yet by which the certificate of the manager could be verified: the caller compares the package with the
fingerprint that it has read by the API.
"""

from __future__ import annotations

import re
import selectors
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPSConnection
from io import BufferedReader
from typing import Final, NoReturn, cast

from svc import naming
from svc.cli.compartments import kubectl
from svc.cli.errors import FederationRefused
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.errors import printable
from svc.federation.package import VerifiedPackage, verify_package

PATH: Final = "/v1/bootstrap-package"
#: For each of both: kubectl listens, and the manager answers.
SECONDS: Final = 30.0
_HOST: Final = "127.0.0.1"
_LISTENS: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:([0-9]{1,5}) -> ")
#: kubectl prints one line of some 50 octets before it listens.
_MAX_OUTPUT: Final = 4096
#: They would end this process alone.
_SIGNALS: Final = (signal.SIGHUP, signal.SIGTERM)
#: What kubectl has after SIGTERM.
_ENDING: Final = 5.0


def words(kubeconfig: str, context: str) -> list[str]:
    """Return the words for kubectl behind its name."""
    return [
        *(["--kubeconfig", kubeconfig] if kubeconfig else []),
        *(["--context", context] if context else []),
        *("--namespace", naming.DEFAULT_NAMESPACE),
        *("port-forward", "--address", _HOST, f"svc/{naming.M2M_SERVICE}", f":{naming.PORT_M2M_SERVICE}"),
    ]


def live_package(kubeconfig: str, context: str, environ: Mapping[str, str]) -> VerifiedPackage:
    """
    Fetch and verify the package of a manager; whose it is, is not known by that.

    Args:
        kubeconfig: a file; empty for what ``environ`` says.
        context: empty for the current one.

    Raises:
        KubectlMissing: kubectl cannot be started.
        FederationRefused: ``tunnel_failed``.
    """
    with _forwarded(words(kubeconfig, context), environ) as port:
        data = _fetched(port)
    try:
        return verify_package(data)
    except EnvelopeError as error:
        raise FederationRefused("tunnel_failed", detail=f"what the manager serves is no package: {error}") from error


@contextmanager
def _forwarded(command: list[str], environ: Mapping[str, str]) -> Iterator[int]:
    """Run kubectl until the block ends, by a signal too; gives the port at which it listens."""
    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _ended) for number in heeded}
    try:
        with _running(command, environ) as child:
            yield _port(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


@contextmanager
def _running(command: list[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    child = kubectl.started(command, environ)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(_ENDING)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _port(child: subprocess.Popen[bytes]) -> int:
    output = cast(BufferedReader, child.stdout)
    seen, deadline = b"", time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while len(seen) < _MAX_OUTPUT and selector.select(max(0.0, deadline - time.monotonic())):
            piece = output.read1(_MAX_OUTPUT)
            if not piece:
                raise FederationRefused("tunnel_failed", detail="kubectl port-forward has ended; it says why")
            seen += piece
            if found := _LISTENS.search(seen):
                return int(found[1])
    raise FederationRefused("tunnel_failed", detail="kubectl port-forward does not say where it listens")


def _fetched(port: int) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    # The package is what is verified, by its signatures and by the fingerprint that the API server has.
    context.verify_mode = ssl.CERT_NONE
    connection = HTTPSConnection(_HOST, port, timeout=SECONDS, context=context)
    try:
        connection.request("GET", PATH)
        response = connection.getresponse()
        status, data = response.status, response.read(MAX_ENVELOPE + 1)
    except (OSError, HTTPException) as error:
        detail = f"the manager does not answer: {printable(error) or type(error).__name__}"
        raise FederationRefused("tunnel_failed", detail=detail) from error
    finally:
        connection.close()
    if status != 200:
        raise FederationRefused("tunnel_failed", detail=f"the manager answers with HTTP status {status}")
    return data
