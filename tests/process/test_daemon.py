"""The life of a daemon, on a reactor in memory."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock

from svc.errors import SvcError
from svc.pages.listening import ListenFailed
from svc.process.notify import READY, STOPPING, notify
from svc.process.plugin import DaemonMaker
from svc.settings import HostPort
from svc.telemetry.events.daemon import DaemonEvent
from tests.process.example import Example, ExampleSettings
from tests.proxy.parts import LogTestCase

LISTEN, ADMIN = HostPort("127.0.0.1", 8000), HostPort("127.0.0.1", 9909)
SETTINGS = ExampleSettings(listen=LISTEN, adminAddr=ADMIN)


class Refused(SvcError):
    """it is refused"""

    reason = "refused"
    hint = "do it otherwise"


class Reactor(MemoryReactorClock):
    """A reactor with ports that are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: set[int] = set()

    def listenTCP(self, port: int, *others: Any, interface: str = "", **keys: Any) -> Any:
        """Open a port."""
        if port in self.taken:
            raise CannotListenError(interface, port, OSError(98, "Address already in use"))
        return super().listenTCP(port, *others, interface=interface, **keys)  # type: ignore[misc]


class Watched(Example):
    """The example, with a part that can be slow or broken."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.journal: list[str] = []
        self.opened: Deferred[None] | None = None
        self.finished: Deferred[None] | None = None
        self.failure: Exception | None = None

    async def open(self) -> None:
        self.journal.append("open")
        if self.opened is not None:
            await self.opened
        if self.failure is not None:
            raise self.failure
        await super().open()

    def sweep(self) -> None:
        self.journal.append("sweep")
        raise KeyError("a failure")

    async def take(self, settings: ExampleSettings) -> Mapping[str, str]:
        if self.failure is not None:
            raise self.failure
        return await super().take(settings)

    def announce_end(self, delay: float) -> None:
        self.journal.append(f"end in {delay:g} s")

    async def finish(self) -> None:
        self.journal.append("finish")
        if self.finished is not None:
            await self.finished

    def closing(self) -> tuple[Callable[[], object], ...]:
        return (self.break_off, *super().closing(), lambda: self.journal.append("closed"))

    def break_off(self) -> None:
        """A step that fails."""
        raise KeyError("a failure")


class DaemonCase(LogTestCase):
    """Makes one that is not started."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)
        self.reactor = Reactor()
        self.fatal = 0
        self.next: ExampleSettings | SvcError = SETTINGS
        self.daemon = Watched(SETTINGS, self.reactor, self.has_failed, self.load)

    def has_failed(self) -> None:
        self.fatal += 1

    def load(self) -> ExampleSettings:
        if isinstance(self.next, SvcError):
            raise self.next
        return self.next

    @property
    def ports(self) -> list[int]:
        return [port for port, *_others in self.reactor.tcpServers]

    def start(self) -> None:
        self.daemon.startService()
        self.successResultOf(self.daemon.when_started())

    def stop(self) -> None:
        self.successResultOf(self.daemon.stopService())
        self.assertEqual(1, len(self.flushLoggedErrors(KeyError)))
        self.only(DaemonEvent.PROCESS_STOPPED)


class StartTests(DaemonCase):
    """From the pages to the first sweep."""

    def test_order(self) -> None:
        """The pages are open first, then what the daemon opens; it is ready when all is."""
        self.daemon.opened = opened = Deferred()
        self.daemon.startService()
        self.assertEqual([ADMIN.port], self.ports)
        waiting = self.daemon.when_started()
        self.assertNoResult(waiting)
        opened.callback(None)
        self.successResultOf(waiting)
        self.assertEqual([ADMIN.port, LISTEN.port], self.ports)
        self.assertTrue(self.daemon.serving)
        self.assertEqual({"pid": os.getpid()}, self.only(DaemonEvent.PROCESS_STARTED).attributes)

    def test_known_failure(self) -> None:
        """The reason, the sentence and what to do are logged; who waits gets the error."""
        self.reactor.taken.add(ADMIN.port)
        self.daemon.startService()
        self.failureResultOf(self.daemon.when_started(), ListenFailed)
        failed = self.only(DaemonEvent.PROCESS_START_FAILED)
        self.assertEqual((1, "listen_failed", False), (self.fatal, failed.fields["detail_reason"], failed.failed))
        self.assertIn("could not start: adminAddr cannot be opened", failed.fields["message"])
        self.assertIn("choose another one in adminAddr", failed.fields["detail"])
        self.assertEqual([], self.daemon.journal)
        self.stop()

    def test_unexpected_failure(self) -> None:
        """An unexpected exception is logged with its traceback."""
        self.daemon.failure = RuntimeError("no")
        self.daemon.startService()
        self.failureResultOf(self.daemon.when_started(), RuntimeError)
        self.assertTrue(self.only(DaemonEvent.PROCESS_START_FAILED).failed)
        self.assertEqual((1, 1), (self.fatal, len(self.flushLoggedErrors(RuntimeError))))
        self.stop()

    def test_drain_before_all_is_open(self) -> None:
        """A drain during the start keeps it from being ready; its end is no failure."""
        self.daemon.opened = opened = Deferred()
        self.daemon.startService()
        self.successResultOf(self.daemon.drain())
        opened.callback(None)
        self.assertFalse(self.daemon.serving)
        self.assertEqual([], self.of(DaemonEvent.PROCESS_STARTED))
        self.stop()
        self.assertEqual((0, ["open", "end in 0 s", "finish", "closed"]), (self.fatal, self.daemon.journal))

    def test_stop_during_the_start(self) -> None:
        """A stop cancels the start, which is no failure."""
        cancelled: list[object] = []
        self.daemon.opened = Deferred(cancelled.append)
        self.daemon.startService()
        self.stop()
        self.assertEqual((1, 0, []), (len(cancelled), self.fatal, self.of(DaemonEvent.PROCESS_START_FAILED)))

    def test_sweep(self) -> None:
        """An exception in a sweep is logged, and the next one comes all the same; after the end there is none."""
        self.start()
        self.reactor.pump([1.0] * 3)
        self.assertEqual(["open", "sweep", "sweep", "sweep"], self.daemon.journal)
        self.assertEqual(3, len(self.flushLoggedErrors(KeyError)))
        self.stop()
        self.reactor.pump([1.0] * 3)
        self.assertEqual(["end in 0 s", "finish", "closed"], self.daemon.journal[4:])


class ReloadTests(DaemonCase):
    """The configuration, read again."""

    def test_applied(self) -> None:
        """It is in force, and logged with what has changed."""
        self.start()
        self.next = SETTINGS.model_copy(update={"greeting": "good day"})
        self.assertTrue(self.successResultOf(self.daemon.reload()))
        self.assertEqual("good day", self.daemon.settings.greeting)
        for event in (DaemonEvent.CONFIG_LOADED, DaemonEvent.CONFIG_RELOADED):
            self.assertEqual({"changed": "greeting"}, self.only(event).attributes)

    def test_refused(self) -> None:
        """A configuration that cannot be read, and one that cannot be applied, leave the one before in force."""
        self.start()
        self.next = Refused()
        self.assertFalse(self.successResultOf(self.daemon.reload()))
        self.assertEqual("refused", self.only(DaemonEvent.CONFIG_REJECTED).fields["detail_reason"])
        self.next, self.daemon.failure = SETTINGS, RuntimeError("no")
        self.assertFalse(self.successResultOf(self.daemon.reload()))
        self.assertTrue(self.of(DaemonEvent.CONFIG_REJECTED)[1].failed)
        self.assertEqual(1, len(self.flushLoggedErrors(RuntimeError)))

    def test_during_the_start(self) -> None:
        """A reload waits until everything is open."""
        self.daemon.opened = opened = Deferred()
        self.daemon.startService()
        reloading = self.daemon.reload()
        self.assertNoResult(reloading)
        opened.callback(None)
        self.assertTrue(self.successResultOf(reloading))


class EndTests(DaemonCase):
    """The drain, and the end in order."""

    def test_order(self) -> None:
        """What was begun may end; then the steps follow, a broken one too; the pages are last."""
        self.start()
        self.daemon.finished = finished = Deferred()
        ending = self.daemon.stopService()
        self.assertFalse(self.daemon.serving)
        self.assertEqual(["open", "end in 0 s", "finish"], self.daemon.journal)
        finished.callback(None)
        self.successResultOf(ending)
        self.assertEqual(["open", "end in 0 s", "finish", "closed"], self.daemon.journal)
        self.assertEqual(1, len(self.flushLoggedErrors(KeyError)))
        self.assertFalse(self.daemon.servers.running)

    def test_several_wait(self) -> None:
        """A drain and an end that were asked for already are the same ones."""
        self.start()
        self.daemon.finished = finished = Deferred()
        waiting = [self.daemon.drain(), self.daemon.stopService(), self.daemon.drain(), self.daemon.stopService()]
        self.assertTrue(self.daemon.draining)
        finished.callback(None)
        for each in waiting:
            self.successResultOf(each)
        self.assertEqual(["open", "end in 0 s", "finish", "closed"], self.daemon.journal)
        self.flushLoggedErrors(KeyError)


class LeaveTests(DaemonCase):
    """The end with a delay, as on SIGUSR1."""

    def setUp(self) -> None:
        super().setUp()
        self.ended = 0

    def leave(self) -> None:
        def end() -> None:
            self.ended += 1

        self.daemon.leave(end)

    def test_delay(self) -> None:
        """It is not ready at once, takes new work for the configured time, and ends when what was begun has ended."""
        self.start()
        self.daemon.finished = finished = Deferred()
        self.leave()
        self.assertTrue(self.daemon.draining)
        self.assertEqual(["open", "end in 2 s"], self.daemon.journal)
        self.reactor.advance(1.999)
        self.assertNotIn("finish", self.daemon.journal)
        self.reactor.advance(0.001)
        self.assertIn("finish", self.daemon.journal)
        self.assertEqual(0, self.ended)
        finished.callback(None)
        self.assertEqual(1, self.ended)
        self.flushLoggedErrors(KeyError)

    def test_stop_during_the_delay(self) -> None:
        """A kubelet sends SIGTERM as soon as the signal was sent: the delay is not shorter for that."""
        self.start()
        self.leave()
        ending = self.daemon.stopService()
        self.reactor.advance(1.999)
        self.assertNoResult(ending)
        self.assertNotIn("finish", self.daemon.journal)
        self.reactor.advance(0.001)
        self.successResultOf(ending)
        self.assertEqual(1, self.ended)
        self.flushLoggedErrors(KeyError)

    def test_end_that_has_begun(self) -> None:
        """An end without delay gets none from a signal that comes later."""
        self.start()
        self.daemon.finished = finished = Deferred()
        self.daemon.drain()
        self.leave()
        self.assertEqual(["open", "end in 0 s", "finish"], self.daemon.journal)
        finished.callback(None)
        self.assertEqual(1, self.ended)

    def test_during_the_start(self) -> None:
        """Before everything is open there is nobody to wait for."""
        self.daemon.opened = Deferred()
        self.daemon.startService()
        self.leave()
        self.assertEqual((1, ["open", "end in 0 s", "finish"]), (self.ended, self.daemon.journal))

    def test_no_delay(self) -> None:
        """The delay may be 0."""
        self.daemon.settings = SETTINGS.model_copy(update={"drainDelay": 0.0})
        self.start()
        self.leave()
        self.assertEqual((1, ["open", "end in 0 s", "finish"]), (self.ended, self.daemon.journal))


class NotifyTests(DaemonCase):
    """What a service manager is told."""

    def setUp(self) -> None:
        super().setUp()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.addCleanup(self.socket.close)

    def ask(self, path: str) -> None:
        """Have this process think that a service manager started it."""
        os.environ["NOTIFY_SOCKET"] = path
        self.addCleanup(os.environ.pop, "NOTIFY_SOCKET")

    def told(self) -> list[bytes]:
        """Read what has arrived."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(100))
            except BlockingIOError:
                return found

    def test_life(self) -> None:
        """It is told when everything runs, and when the end begins."""
        self.socket.bind(f"\0svc-test-{os.getpid()}")
        self.ask(f"@svc-test-{os.getpid()}")
        self.daemon.opened = opened = Deferred()
        self.daemon.startService()
        self.assertEqual([], self.told())
        opened.callback(None)
        self.assertEqual([b"READY=1"], self.told())
        self.stop()
        self.assertEqual([b"STOPPING=1"], self.told())

    def test_path(self) -> None:
        """A socket may have a path; without one, nobody is told."""
        path = Path(self.mktemp())
        self.socket.bind(str(path))
        notify(READY, {"NOTIFY_SOCKET": str(path.absolute())})
        notify(STOPPING, {})
        notify(STOPPING, {"NOTIFY_SOCKET": ""})
        notify(STOPPING, {"NOTIFY_SOCKET": str(path)})
        self.assertEqual([b"READY=1"], self.told())

    def test_nobody_there(self) -> None:
        """A socket that takes nothing is logged, and ends nothing."""
        self.assertRaises(OSError, notify, READY, {"NOTIFY_SOCKET": "/proc/nonexistent/notify"})
        self.ask("/proc/nonexistent/notify")
        self.start()
        self.assertTrue(self.daemon.serving)
        self.stop()
        self.assertEqual(2, len(self.flushLoggedErrors(FileNotFoundError)))


class PluginTests(DaemonCase):
    """The plugin of ``twistd``."""

    def test_signals(self) -> None:
        """From its choice on, signals that will have handlers end nothing."""
        numbers = (signal.SIGHUP, signal.SIGUSR1)
        for number in numbers:
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        maker = DaemonMaker("svc example", "tests.process.example", "", "svc-example")
        for number in numbers:
            self.assertNotEqual(signal.SIG_IGN, signal.getsignal(number))
        self.assertEqual("Options", maker.options.__name__)
        for number in numbers:
            self.assertEqual(signal.SIG_IGN, signal.getsignal(number))
