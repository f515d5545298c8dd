"""What the failure of a request to the issuer says."""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web._newclient import RequestTransmissionFailed, ResponseNeverReceived

from svc.transport.errors import ConnectFailed, ConnectTimeout, HandshakeFailed, TransportError
from svc.workload.errors import PqIssuerError
from svc.workload.pqclient import issuer_failure, not_reached

ADDRESS = "issuer.example:8445"


class IssuerFailureTests(SynchronousTestCase):
    """One plain line, whatever Twisted's HTTP client wraps."""

    def failed(self, error: BaseException) -> PqIssuerError:
        """Convert it."""
        found = issuer_failure(Failure(error), ADDRESS).value
        assert isinstance(found, PqIssuerError)
        return found

    def what(self, error: BaseException) -> str:
        """Behind the common words."""
        begun, what = str(self.failed(error)).split(" cannot be reached: ", 1)
        self.assertEqual(f"the PQ issuer at {ADDRESS}", begun)
        return what

    def test_wrapped(self) -> None:
        """The cause in place of the representation of a list of failures, however deep it is."""
        refused = HandshakeFailed(address=ADDRESS, detail="the peer refuses the certificate")
        lost = Failure(ConnectionLost())
        for error, what in (
            (ResponseNeverReceived([Failure(ConnectionDone())]), "the connection was lost"),
            (ResponseNeverReceived([lost, Failure(refused)]), str(refused)),
            (RequestTransmissionFailed([lost]), str(ConnectionLost())),
            (RequestTransmissionFailed([Failure(refused)]), str(refused)),
            (RequestTransmissionFailed([Failure(ResponseNeverReceived([lost]))]), "the connection was lost"),
            (RequestTransmissionFailed([Failure(KeyError())]), "KeyError"),
            (OSError(101, "Network is unreachable"), "[Errno 101] Network is unreachable"),
            (RuntimeError("one\ntwo"), "one\\x0atwo"),
            (RuntimeError(), "RuntimeError"),
        ):
            found = self.what(error)
            self.assertEqual(what, found)
            self.assertNotIn("Failure", found)
            self.assertNotIn("\n", found)

    def test_not_reached(self) -> None:
        """Another attempt is worth it, as soon as a connection can be made, where none was made or nothing came."""
        for error, worth in (
            (ConnectFailed(address=ADDRESS, detail="connection refused"), True),
            (ConnectTimeout(address=ADDRESS, detail="5 s"), True),
            (HandshakeFailed(address=ADDRESS, detail="no"), False),
            (ResponseNeverReceived([Failure(TransportError())]), False),
        ):
            self.assertEqual(worth, not_reached(self.failed(error)), error)
        self.assertTrue(not_reached(PqIssuerError("pq_issuer_timeout", address=ADDRESS, seconds=10.0)))
        self.assertFalse(not_reached(PqIssuerError("pq_issuer_refused", address=ADDRESS, status=403, code="x")))
        self.assertFalse(not_reached(None))

    def test_cancelled(self) -> None:
        """What the caller has cancelled stays that."""
        self.assertIsInstance(issuer_failure(Failure(CancelledError()), ADDRESS).value, CancelledError)
