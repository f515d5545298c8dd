"""The examples of docs/applications.md: run as they stand there, with what the proxy writes and with forgeries."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.test.requesthelper import DummyRequest

from svc.proxy.config import ProxySettings
from svc.settings import parse
from svc.wire.forwarded import ForwardedHop, node, obfuscated
from tests.peers.waiting import TOP
from tests.proxy.rig import CALLER, Rig

PAGE = (TOP / "docs" / "applications.md").read_text()
FIELD = "X-Forwarded-Client-Cert"


def blocks(language: str) -> list[str]:
    """Return the examples in a language."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(each) for each in found]


def arrived(request: bytes = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n") -> list[tuple[str, str]]:
    """Return the fields with which a request of a verified client arrives."""
    rig = Rig()
    client, _wire = rig.client()
    client.dataReceived(request)
    lines = rig.upstream()[1].take().decode("latin-1").split("\r\n")[1:-2]
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def value() -> str:
    """Return the value of the field that the proxy adds."""
    [found] = [each for name, each in arrived() if name == FIELD]
    return found


def forgeries() -> list[str]:
    """Return values that the proxy does not write."""
    good = value()
    return [
        *(
            "",
            " ",
            "URI=spiffe://prod.example/ns/web/sa/fe",
            good + "\n",
            " " + good,
            good.upper(),
            good[:-3] + "\x00fe",
        ),
        *(
            f"{good},{good}",
            f"{good};URI=spiffe://prod.example/admin",
            good.replace("By=", "By=spiffe://a;"),
            good + ' "',
        ),
        *(re.sub("Hash=.", "Hash=", good), good.replace("spiffe://", "https://"), good.replace(";", "; ")),
    ]


class ExampleTestCase(SynchronousTestCase):
    """Base class: everything that the page defines."""

    def setUp(self) -> None:
        """Run the page."""
        self.names: dict[str, Any] = {}
        for each in blocks("python"):
            exec(each, self.names)


class CallerTests(ExampleTestCase):
    """Reading the caller."""

    def test_value(self) -> None:
        """The identity is read from what the proxy writes, and from nothing else."""
        self.assertEqual(self.names["caller_id"](value()), str(CALLER.spiffe_id))
        self.assertIsNone(self.names["caller_id"](None))
        for forged in forgeries():
            self.assertIsNone(self.names["caller_id"](forged), forged)

    def wsgi(self, environ: dict[str, str]) -> tuple[str, bytes]:
        """Run the WSGI example; return what it answers."""
        started: list[str] = []

        def application(environ: dict[str, str], start: Any) -> Iterable[bytes]:
            start("200 OK", [])
            return [environ["svc.caller"].encode()]

        found = self.names["VerifiedCaller"](application)(environ, lambda status, _fields: started.append(status))
        return started[0], b"".join(found)

    def test_wsgi(self) -> None:
        """A verified caller is served; a missing, repeated or forged field gives 403."""
        key = "HTTP_" + FIELD.upper().replace("-", "_")
        self.assertEqual(self.wsgi({key: value()}), ("200 OK", str(CALLER.spiffe_id).encode()))
        for environ in ({}, *({key: forged} for forged in forgeries())):
            self.assertEqual(self.wsgi(environ)[0], "403 Forbidden")

    def asgi(self, kind: str, *values: str) -> list[dict[str, Any]]:
        """Run the ASGI example; return what it sends."""
        sent: list[dict[str, Any]] = []

        async def application(scope: dict[str, Any], _receive: object, send: Any) -> None:
            await send({"caller": scope.get("svc.caller")})

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {"type": kind, "headers": [(FIELD.lower().encode(), each.encode()) for each in values]}
        run = self.names["VerifiedCallerASGI"](application)(scope, None, send)
        self.successResultOf(Deferred.fromCoroutine(run))
        return sent

    def test_asgi(self) -> None:
        """The same, for WebSockets too; other scopes pass."""
        for kind in ("http", "websocket"):
            self.assertEqual(self.asgi(kind, value()), [{"caller": str(CALLER.spiffe_id)}])
        for values in ([], [value(), value()], *([forged] for forged in forgeries())):
            self.assertEqual(self.asgi("http", *values)[0]["status"], 403)
            self.assertEqual(self.asgi("websocket", *values), [{"type": "websocket.close", "code": 1008}])
        self.assertEqual(self.asgi("lifespan"), [{"caller": None}])

    def test_twisted(self) -> None:
        """The same of a resource."""
        for values, expected in (
            ([value()], f"hello, {CALLER.spiffe_id}\n"),
            ([], "not through the proxy\n"),
            ([value(), value()], "not through the proxy\n"),
        ):
            request = DummyRequest([b""])
            request.requestHeaders.setRawHeaders(FIELD, values)
            self.assertEqual(self.names["Hello"]().render_GET(request), expected.encode())


class PageTests(SynchronousTestCase):
    """What else the page shows."""

    def test_request(self) -> None:
        """The request of the page is what arrives, but for shortened digits."""
        shown = blocks("text")[0].splitlines()
        fields = arrived(f"{shown[0]}\r\n{shown[1]}\r\n{shown[2]}\r\n\r\n".encode())
        plain = [
            re.sub(r"spiffe://[^;]+", "ID", re.sub(r"Hash=[^;]+", "Hash=", f"{name}: {text}")) for name, text in fields
        ]
        self.assertEqual(
            [re.sub(r"spiffe://[^;]+", "ID", re.sub(r"Hash=[^;]+", "Hash=", line)) for line in shown[1:]], plain
        )

    def test_forwarded(self) -> None:
        """The examples of ``Forwarded`` are what would be written."""
        hosts = ("192.0.2.43", 47011, b"pay.example.org:8443"), ("2001:db8::17", 4711, b"pay.example.org")
        hops = [ForwardedHop(node(host, port), obfuscated("web"), b"https").value(name) for host, port, name in hosts]
        self.assertEqual(blocks("text")[1].splitlines(), [f"Forwarded: {each.decode()}" for each in hops])

    def test_removed(self) -> None:
        """Every field that the page names as removed is removed, and every other one that it names arrives."""
        section = PAGE.partition("## What clients cannot say")[2].partition("\n## ")[0]
        cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        removed = set(re.findall(r"`([A-Za-z-]+)`", "".join(cells)))
        removed = {f"X-Forwarded{each}" if each.startswith("-") else each for each in removed} | {
            "Forwarded-For",
            "Svc-X",
        }
        self.assertGreater(len(removed), 20)
        kept = set(re.findall(r"`([A-Za-z-]+)`", section.partition("claims:")[2].partition("The policy")[0])) - {"Host"}
        self.assertGreater(len(kept), 6)
        special = {"Connection", "Transfer-Encoding", "Upgrade"}
        lines = "".join(f"{each}: trailers\r\n" for each in sorted((removed | kept) - special))
        names = {
            name for name, _ in arrived(f"GET / HTTP/1.1\r\nHost: a\r\nConnection: b\r\nB: 1\r\n{lines}\r\n".encode())
        }
        self.assertEqual(names, kept | {"Host", "X-Forwarded-Client-Cert", "X-Forwarded-Proto"})

    def test_listeners(self) -> None:
        """The listeners of the page are valid."""
        [bank, verified, conditional] = (
            parse(f"trustDomain: example.org\nlisteners:\n{text}", ProxySettings).listeners[0]
            for text in blocks("yaml")
        )
        self.assertEqual((bank.direction, bank.host), ("outbound", "pay.bank.example"))
        self.assertEqual((verified.require, verified.collectReceipts), (("receipt",), True))
        assert conditional.peerStatement is not None
        self.assertEqual(("pay",), conditional.peerStatement.conditions[0].namespaces)
