"""The disk of the notary database is full or broken: nothing is promised in vain, and what was promised is kept."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.peers.faulty_disk import Breakable, fill, later, memory_disk, mounted
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Ended, RawConnection, Response
from tests.peers.waiting import eventually


class DiskTestCase(SynchronousTestCase):
    """Base class; these tests need the right to mount."""

    def setUp(self) -> None:
        """Nothing is mounted yet."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def proxy(self, disk: Path) -> Breakable:
        """A proxy that serves, with one receipt in its database."""
        proxy = Breakable(self.stack, disk)
        proxy.serve()
        self.assertEqual(200, proxy.ask("signRequest").status)
        return proxy

    def refusal(self, proxy: Breakable) -> Response:
        """Ask until records are refused; what is answered until then is acknowledged, what breaks off is not."""

        def ask() -> Response | None:
            began = time.monotonic()
            try:
                answer = proxy.ask("signRequest")
            except Ended:
                self.assertLess(time.monotonic() - began, 8.0, "the disk answered, and nobody passed it on")
                return None
            return answer if answer.status != 200 else None

        found: Response = eventually(ask, 60, "a refusal")
        return found

    def assert_refuses_in_time(self, proxy: Breakable, cause: str = "disk full") -> None:
        """Records are refused before the application gets the request and logged with the cause; all else is served."""
        answer = self.refusal(proxy)
        self.assertEqual((503, "notary_unavailable"), (answer.status, json.loads(answer.body)["code"]))
        self.assertIsNotNone(answer.get("retry-after"))
        asked = len(proxy.application.asked)
        for level in ("logRequest", "signRequest"):
            self.assertEqual(503, proxy.ask(level).status)
        self.assertEqual(asked, len(proxy.application.asked), "the application must not see what was refused")
        self.assertEqual(200, proxy.ask("workload").status)
        self.assertEqual(asked + 1, len(proxy.application.asked))
        store = proxy.readiness()["store"]
        self.assertEqual((False, "notary_unavailable"), (store["ok"], store["reason"]))
        eventually(lambda: proxy.records("svc.store.read_only"), what="the record of it")
        eventually(lambda: proxy.records("svc.notary.record.failed"), what="the record of a refusal")
        failed = [each for each in proxy.records("svc.store.failed") if each["attributes"]["op"] != "init"]
        for logged in (*proxy.records("svc.store.read_only"), *failed):
            self.assertEqual(str(proxy.database), logged["attributes"]["path"])
            self.assertRegex(logged["detail"], rf"^{cause}, \d+ octets free on its file system: ")
        self.assertIn(str(proxy.database), store["message"])
        refused = proxy.records("svc.notary.record.failed")[-1]
        self.assertRegex(
            refused["detail"],
            rf"database {re.escape(str(proxy.database))} takes no record right now: .*{cause}, \d+ octets free on its ",
        )
        self.assertEqual(0.0, proxy.metric("svc_proxy_notary_writable"))
        self.assertGreaterEqual(proxy.errors_counted(), 1.0)
        self.assertEqual([], proxy.lost())

    def assert_back(self, proxy: Breakable, event: str = "svc.store.writable") -> None:
        """Records are taken again without a restart, and none that was acknowledged is missing."""
        eventually(lambda: proxy.readiness()["store"]["ok"], 60, "a store that takes records")
        self.assertEqual(200, proxy.ask("signRequest").status)
        self.assertEqual(200, proxy.ask("logRequest").status)
        eventually(lambda: proxy.records(event), what="the record of it")
        self.assertEqual([], proxy.lost())


class FullDiskTests(DiskTestCase):
    """A small file system in memory."""

    def test_full_disk(self) -> None:
        """While it is full recorded requests get 503 before they are forwarded, others go on; later all is well."""
        disk = memory_disk(self.stack)
        proxy = self.proxy(disk)
        filler = fill(disk)
        self.assert_refuses_in_time(proxy)
        filler.unlink()
        self.assert_back(proxy)

    def test_running_exchanges(self) -> None:
        """Exchanges that run when the disk becomes full are answered whole and recorded in the reserve."""
        disk = memory_disk(self.stack)
        proxy = self.proxy(disk)
        answers: list[int] = []
        running = [later(lambda: answers.append(proxy.ask("signRequest", "/held").status)) for _number in range(12)]
        eventually(lambda: proxy.application.asked.count("/held") == 12, 60, "exchanges at the application")
        filler = fill(disk)
        proxy.application.gate.set()
        for each in running:
            each.join(60)
        self.assertEqual([200] * 12, answers)
        self.assertEqual(13, len(proxy.acknowledged))
        self.assert_refuses_in_time(proxy)
        filler.unlink()
        self.assert_back(proxy)

    def test_start_without_room(self) -> None:
        """Where nothing can be written the start fails with the reason and what to do; with room it succeeds."""
        disk = memory_disk(self.stack, "2m")
        proxy = Breakable(self.stack, disk)
        filler = fill(disk)
        self.assertEqual(1, proxy.launch().wait())
        [logged] = proxy.records("svc.process.start_failed")
        self.assertEqual("notary_unavailable", logged["detail_reason"])
        self.assertIn(str(proxy.database), logged["message"])
        self.assertIn("disk full, ", logged["message"])
        self.assertIn("free space", logged["detail"])
        filler.unlink()
        # There is no room for the reserve either: it serves, and takes no records.
        proxy.serve()
        self.assert_refuses_in_time(proxy)

    def test_restart_on_a_full_disk(self) -> None:
        """A proxy that is killed and starts again on the full disk serves old receipts, and later takes new ones."""
        disk = memory_disk(self.stack)
        proxy = self.proxy(disk)
        filler = fill(disk)
        self.refusal(proxy)
        proxy.kill()
        proxy.log_path.unlink()
        proxy.serve()
        self.assert_refuses_in_time(proxy)
        filler.unlink()
        self.assert_back(proxy, "svc.store.opened")

    def test_end_and_restart_on_a_full_disk(self) -> None:
        """The same after an end in order, which leaves no log that could be written to."""
        disk = memory_disk(self.stack)
        proxy = self.proxy(disk)
        self.assertEqual(0, proxy.halt())
        proxy.log_path.unlink()
        filler = fill(disk)
        proxy.serve()
        self.assert_refuses_in_time(proxy)
        filler.unlink()
        self.assert_back(proxy, "svc.store.opened")


class SharedDiskTests(DiskTestCase):
    """One identity fills a small disk, or what one proxy may take of a large one; another one goes on."""

    def answers(self, proxy: Breakable, tls: ssl.SSLContext, count: int) -> list[Response]:
        """Ask on one connection for large records, until one is refused or there are as many."""
        fields = f"Svc-Notarization-Level: logRequest\r\nX-Filler: {'x' * 30_000}\r\n"
        found: list[Response] = []
        with RawConnection(proxy.port, tls) as connection:
            while len(found) < count and (not found or found[-1].status == 200):
                found.append(connection.request("/", fields=fields))
        return found

    def test_one_fills_it(self) -> None:
        """Who holds most gets 503 and is named, others have records; also after a crash, and with nothing lost."""
        self.assert_shared(self.proxy(memory_disk(self.stack, "64m")), "on the disk")

    def test_one_fills_what_a_proxy_may_take(self) -> None:
        """The same where ``notary.maxBytes`` is the limit."""
        proxy = Breakable(self.stack, notary={"maxBytes": "64MiB"})
        proxy.serve()
        self.assertEqual(200, proxy.ask("signRequest").status)
        self.assert_shared(proxy, "below notary.maxBytes")

    def assert_shared(self, proxy: Breakable, limit: str) -> None:
        """One identity gets most of 64 MiB and is refused; another one goes on."""
        greedy, other = proxy.ground.tls, proxy.ground.other
        room = partial(proxy.metric, "svc_proxy_notary_room_bytes")
        eventually(lambda: room() < 64 * 1024 * 1024, what="a measurement")
        filled = self.answers(proxy, greedy, 3000)
        self.assertGreater(len(filled), 300)
        self.assertLess(len(filled), 1500)
        for again in (False, True):
            if again:
                proxy.kill()
                proxy.serve()
                eventually(lambda: room() < 64 * 1024 * 1024, what="a measurement")
            asked = len(proxy.application.asked)
            [refused] = self.answers(proxy, greedy, 1) if again else filled[-1:]
            self.assertEqual((503, "notary_unavailable"), (refused.status, json.loads(refused.body)["code"]))
            self.assertIsNotNone(refused.get("retry-after"))
            self.assertEqual(asked, len(proxy.application.asked))
            self.assertEqual([200] * 50, [each.status for each in self.answers(proxy, other, 50)])
            self.assertEqual(503, proxy.ask("signRequest").status)
            self.assertEqual(200, proxy.ask("workload").status)
            self.assertTrue(proxy.readiness()["store"]["ok"])
        [logged, *_] = eventually(lambda: proxy.records("svc.notary.record.failed"), what="the record of a refusal")
        self.assertRegex(logged["detail"], rf"\d+ octets are left {limit}, and records of \S+/sa/api take \d+ already")
        self.assertGreater(room(), 4 * 1024 * 1024)
        self.assertEqual([], proxy.lost())


class BrokenDiskTests(DiskTestCase):
    """A file system on a loop device."""

    def image(self, folder: Path, size: str) -> Path:
        """A file with an empty file system."""
        image = folder / "image"
        commands = (
            ["truncate", "-s", size, str(image)],
            ["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", str(image)],
        )
        for command in commands:
            if subprocess.run(command, capture_output=True, check=False).returncode:
                raise SkipTest(f"{command[0]} does not run: apt-get install e2fsprogs")
        return image

    def test_read_only(self) -> None:
        """A disk that the kernel makes read-only costs the records, not the service, nor the old receipts."""
        image = self.image(short_folder(self.stack), "48m")
        disk = mounted(self.stack, "-o", "loop,errors=remount-ro", source=str(image))
        [device] = [
            line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(disk)
        ]
        proxy = self.proxy(disk)
        # As the kernel does when it finds the file system inconsistent.
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")
        eventually(lambda: not _writable(disk), 60, "a read-only disk")
        self.assert_refuses_in_time(proxy, "read-only file system")
        time.sleep(2.5)  # Two attempts to become writable again must not end anything.
        self.assert_refuses_in_time(proxy, "read-only file system")

    def test_errors_of_the_device(self) -> None:
        """A device that fails to write breaks exchanges off before their end; when it works again so does the store."""
        cellar = memory_disk(self.stack, "40m")
        disk = mounted(self.stack, "-o", "loop,errors=continue", source=str(self.image(cellar, "96m")))
        proxy = self.proxy(disk)
        # The image is larger than what it lies on: its new blocks do not fit, which the file system reports as EIO.
        filler = fill(cellar)
        self.assert_refuses_in_time(proxy, "I/O error")
        filler.unlink()
        self.assert_back(proxy)


def _writable(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
    except OSError:
        return False
    return True
