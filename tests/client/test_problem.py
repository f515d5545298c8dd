"""Tests of what is accepted as a problem document, and of the advice for each code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.client.problem import _ADVICE, MAX_PROBLEM, Problem, read_problem
from svc.notary.access import problem
from svc.policy import Denied
from svc.proxy import errors as proxy_errors
from svc.wire.http1 import ResponseHead, ResponseParser

TYPE = b"application/problem+json"


def head(status: int = 403, *types: bytes) -> ResponseHead:
    """The head of an answer with these media types."""
    lines = b"".join(b"Content-Type: %b\r\n" % each for each in types or (TYPE,))
    [found, *_rest] = ResponseParser(b"GET").feed(
        b"HTTP/1.1 %d Forbidden\r\n%bContent-Length: 0\r\n\r\n" % (status, lines)
    )
    assert isinstance(found, ResponseHead)
    return found


class ReadTests(SynchronousTestCase):
    """What is a problem document."""

    def test_own(self) -> None:
        """The document of a proxy is read, with parameters of the media type or without, in upper or lower case."""
        status, body = problem("policy_deny", status=403)
        for media_type in (TYPE, b"Application/Problem+JSON; charset=utf-8"):
            found = read_problem(head(status, media_type), body)
            self.assertEqual(found, Problem(403, "Forbidden", "policy_deny", False))

    def test_retryable(self) -> None:
        """Only the word true makes it retryable."""
        for value, expected in ((b"true", True), (b"false", False), (b'"yes"', False), (b"1", False)):
            body = b'{"type":"urn:svc:notary:x","status":503,"code":"x","retryable":%b}' % value
            found = read_problem(head(503), body)
            assert found is not None
            self.assertIs(found.retryable, expected)

    def test_head_counts(self) -> None:
        """A response with another media type, two of them or a success is no problem document."""
        _status, body = problem("policy_deny", status=403)
        for each in (head(403, b"application/json"), head(403, TYPE, TYPE), head(500), head(200)):
            self.assertIsNone(read_problem(each, body))

    def test_size(self) -> None:
        """A document of the limit is read, one octet more is not."""
        _status, body = problem("policy_deny", status=403)
        self.assertIsNotNone(read_problem(head(), body + b" " * (MAX_PROBLEM - len(body))))
        self.assertIsNone(read_problem(head(), body + b" " * (MAX_PROBLEM - len(body) + 1)))

    def test_code(self) -> None:
        """A code has 1 to 64 letters a to z and underscores."""
        for code in ("a", "a_b", "z" * 64):
            self.assertIsNotNone(read_problem(head(), problem(code, status=403)[1]), code)
        for code in ("", "A", "a-b", "a1", "a\n", "z" * 65, "a b", "é"):
            self.assertIsNone(read_problem(head(), problem(code, status=403)[1]), code)

    def test_strict(self) -> None:
        """JSON that two parsers may read differently is refused."""
        body = b'{"type":"urn:svc:notary:x","status":403,"code":"x","code":"x"}'
        self.assertIsNone(read_problem(head(), body))
        self.assertIsNone(read_problem(head(), b"[]"))

    @given(st.binary(max_size=200))
    def test_any_octets(self, body: bytes) -> None:
        """Any octets are parsed or refused."""
        self.assertIsNone(read_problem(head(), body))


class AdviceTests(SynchronousTestCase):
    """What to do about each code."""

    def test_every_code_of_the_proxy(self) -> None:
        """Each reason for which a proxy answers a request has advice of its own, without anything left to fill in."""
        kinds = [kind for kind in vars(proxy_errors).values() if isinstance(kind, type) and "reason" in vars(kind)]
        codes = {kind.reason for kind in kinds if issubclass(kind, proxy_errors.ProxyError)} | {Denied.reason}
        # For the log alone: a client that reads nothing gets no response.
        codes -= {"answer_not_taken"}
        self.assertEqual(codes - set(_ADVICE), set())
        for code in (*_ADVICE, "unheard_of"):
            text = Problem(400, "Bad Request", code, False).advice("spiffe://a/b", "spiffe://c/d")
            self.assertNotIn("{", text)
            self.assertNotIn("ask again in a moment", text)
            self.assertIn("ask again in a moment", Problem(400, "Bad", code, True).advice("a", "b"))
