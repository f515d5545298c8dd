"""``Workload.request``, ``stream`` and ``http_agent`` in a process of their own, with a site behind the notary."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.notary.beginnings import MAX_KEPT
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.waiting import Shared, answers, end_process, eventually, free_port

MIB = 1024 * 1024
SITE = """
import hashlib, sys
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site
from svc.embedding import NotarySite

class Page(Resource):
    isLeaf = True
    def render_GET(self, request):
        for name, value in (("Set-Cookie", "a"), ("X-B", " b "), ("Set-Cookie", "c")):
            request.responseHeaders.addRawHeader(name, value)
        return b"x" * (int(request.postpath[0]) * 2**20)
    def render_PUT(self, request):
        return hashlib.sha256(request.content.read()).hexdigest().encode()
    def render_POST(self, request):
        return NOT_DONE_YET

async def main(reactor, agent, issuer, address, path):
    await NotarySite.open(Site(Page()), address, reactor=reactor, trust_domain="prod.example.org",
        allow="spiffe://prod.example.org/*", agent=agent, pq_issuer=issuer, path=path, start_timeout="60s")
    await Deferred()

react(main, sys.argv[1:])
"""
CLIENT = """
import json, sys
from treq.client import HTTPClient
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater, react
from svc.embedding import Workload, exchange_evidence
from svc.errors import SvcError

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

async def upload(workload, url, signed):
    async def pieces():
        for number in range(64):
            yield bytes([number]) * 2**20
    before = resident()
    response = await workload.request("PUT", url + "0", body=pieces(), timeout="2m", **signed)
    body = response.receipt.claims["svc"]["request"]["body"]
    return [response.body.decode(), body["size"], response.evidence.file.request_body is None, resident() - before]

async def download(reactor, workload, url, signed):
    response = await workload.stream("GET", url + "32", **signed)
    before, size = resident(), 0
    await deferLater(reactor, 0.5, lambda: None)
    unread = resident() - before
    async for piece in response:
        size += len(piece)
    found = await response.verified()
    return [size, found.receipt.outcome.value, unread]

async def together(workload, url, signed):
    client = HTTPClient(workload.http_agent(**signed))
    async def one():
        response = await client.get(url + "0")
        await response.content()
        found = await exchange_evidence(response)
        return found.receipt.id, id(found.peer)
    first = await one()
    ids = await gatherResults([Deferred.fromCoroutine(one()) for _ in range(10)])
    return [len({each for each, _ in [first, *ids]}), first[1] in [peer for _, peer in ids]]

async def late(workload, url, signed):
    try:
        await workload.request("POST", url, timeout="500ms", **signed)
    except SvcError as error:
        return [error.reason, str(error)]

async def main(reactor, agent, address):
    url, signed = f"https://{address}/", {"expect": "spiffe://prod.example.org/*", "notarization": "signRequest"}
    workload = await Workload.open(agent, reactor=reactor, start_timeout="60s")
    print(json.dumps({
        "upload": await upload(workload, url, signed),
        "download": await download(reactor, workload, url, signed),
        "together": await together(workload, url, signed),
        "late": await late(workload, url, signed),
    }))

react(main, sys.argv[1:])
"""


class Ran:
    """An authority, a site and what the client found."""

    def __init__(self, stack: ExitStack) -> None:
        folder = short_folder(stack)
        authority = stack.enter_context(
            RunningAuthority("prod.example.org", entries=[entry("/ns/demo/sa/page")], folder=folder)
        )
        self.address = f"127.0.0.1:{free_port()}"
        words = ["-c", SITE, authority.address, authority.pq_address, self.address, str(folder / "notary.db")]
        site = subprocess.Popen([sys.executable, *words], env=environment(), stdin=subprocess.DEVNULL)
        stack.callback(end_process, site)
        eventually(partial(answers, int(self.address.split(":")[1])), 60, self.address)
        found = subprocess.run(
            [sys.executable, "-c", CLIENT, authority.address, self.address],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=environment(),
        )
        assert found.returncode == 0, found.stderr
        self.found: dict[str, Any] = json.loads(found.stdout)


RAN = Shared(Ran)


class RequestTests(SynchronousTestCase):
    """Requests over real connections."""

    def setUp(self) -> None:
        """Let the client run once."""
        self.found: dict[str, Any] = RAN.get().found

    def test_upload(self) -> None:
        """A streamed body is verified by its digest, in bounded memory."""
        digest, size, left_out, grown = self.found["upload"]
        expected = sha256(b"".join(bytes([number]) * MIB for number in range(64))).hexdigest()
        self.assertEqual((digest, size, left_out), (expected, 64 * MIB, True))
        # What the server may have received of it is kept, so that an early receipt is verified.
        self.assertLess(grown, MAX_KEPT + 12 * MIB)

    def test_download(self) -> None:
        """A body that is not read stays with the server; at its end it is verified."""
        size, outcome, unread = self.found["download"]
        self.assertEqual((size, outcome), (32 * MIB, "complete"))
        self.assertLess(unread, 16 * MIB)

    def test_treq(self) -> None:
        """Each of several requests at the same time has its own receipt, and a kept connection is used again."""
        self.assertEqual(self.found["together"], [11, True])

    def test_no_answer(self) -> None:
        """A request ends with its time limit."""
        reason, sentence = self.found["late"]
        self.assertEqual(reason, "answer_late")
        self.assertIn("within 0.5 s", sentence)
