"""``twistd svc-registrar`` beside a real SPIRE server."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from svc.spire.server import SpireServer
from tests.peers.daemon import MonitoredDaemon
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import eventually, free_port


class RunningRegistrar(MonitoredDaemon):
    """One registrar and its folder."""

    def __init__(self, socket: str, *names: str) -> None:
        super().__init__("registrar", None)
        self.admin_port = free_port()
        self.config = {
            "trustDomain": "example.org",
            "serverSocket": f"unix://{socket}",
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "every": "1s",
        }
        self.want(*names)

    def want(self, *names: str) -> None:
        """Configure entries."""
        self.config["entries"] = [
            {"spiffeID": f"/ns/{each}/sa/x", "parentID": "/node", "selectors": [f"k8s:ns:{each}"]} for each in names
        ]


class RegistrarTests(SynchronousTestCase):
    """Entries of a server, and a server that restarts."""

    def test_entries(self) -> None:
        """Entries come, are changed by SIGHUP, come back when they are deleted and after the server was away."""
        with ExitStack() as stack:
            spire = stack.enter_context(RunningSpire(entries=[entry("/plain")]))
            socket = str(spire.folder / "api.sock")
            before = self.ids(socket)
            registrar = RunningRegistrar(socket, "one", "two")
            stack.callback(registrar.stop)
            registrar.start()
            made = self.ids(socket) - before
            self.assertEqual(2, len(made))
            registrar.want("two", "three")
            registrar.write_config()
            assert registrar.process is not None
            registrar.process.send_signal(signal.SIGHUP)
            eventually(lambda: len(self.ids(socket) & made) == 1)
            self.assertEqual(2, len(self.ids(socket) - before))
            spire.kill("server")
            eventually(lambda: registrar.page("/readyz")[0] == 503)
            spire.start_server()
            eventually(lambda: registrar.page("/readyz")[0] == 200)
            self.assertLessEqual(before, self.ids(socket))
            for event in ("svc.registrar.entries.changed", "svc.registrar.entries.failed"):
                self.assertIn(event, registrar.log)

    def ids(self, socket: str) -> set[str]:
        """The identifiers of all entries."""

        async def run() -> set[str]:
            server = SpireServer.at_socket(socket)
            try:
                return {each.id for each in await server.entries()}
            finally:
                server.close()

        return asyncio.run(run())
