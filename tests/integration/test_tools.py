"""``bin/tools``, as far as it builds nothing."""

from __future__ import annotations

from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import TOP


class ToolsTests(SynchronousTestCase):
    """The command line and the cache."""

    def tools(self, *arguments: str, **settings: str) -> tuple[int, str, list[str]]:
        """Run it."""
        ran = run([TOP / "bin" / "tools", *arguments], **settings)
        return ran.returncode, ran.stdout.decode().strip(), ran.stderr.decode().splitlines()

    def test_missing(self) -> None:
        """
        What is not built is reported in one line and a hint, without building it; without a compiler there is none.
        """
        with ExitStack() as stack:
            empty = str(short_folder(stack))
            missing = (1, "", ["svc: spire 1.13.0 is not there", "     bin/tools spire builds it"])
            self.assertEqual(missing, self.tools("--check", "spire", SVC_TOOLS=empty))
            status, out, lines = self.tools("spire", SVC_TOOLS=empty, CC="no-such-compiler")
            self.assertEqual((1, "", 2), (status, out, len(lines)), lines)
            self.assertTrue(lines[0].startswith("svc: spire needs "), lines)

    def test_without_npm(self) -> None:
        """What installs a tool and is not there is named."""
        with ExitStack() as stack:
            empty, programs = short_folder(stack), short_folder(stack)
            for name in ("bash", "dirname", "readlink", "sed"):
                (programs / name).symlink_to(find(name))
            missing = ["svc: mqttjs needs npm, and it was not found", "     as root: apt-get install nodejs npm"]
            self.assertEqual((1, "", missing), self.tools("mqttjs", SVC_TOOLS=str(empty), PATH=str(programs)))

    def test_names(self) -> None:
        """A name that is none and no name at all are refused."""
        self.assertEqual((1, "svc: there is no tool named other"), self._first(self.tools("other")))
        self.assertEqual((2, "usage: bin/tools [--check] NAME..."), self._first(self.tools()))

    def test_there(self) -> None:
        """An installed tool is found in the XDG cache folder, by its version."""
        with ExitStack() as stack:
            cache = short_folder(stack)
            folder = cache / "svc-tools" / "spire-1.13.0"
            folder.mkdir(parents=True)
            self.assertEqual((0, str(folder), []), self.tools("spire", XDG_CACHE_HOME=str(cache)))

    def _first(self, ran: tuple[int, str, list[str]]) -> tuple[int, str]:
        return ran[0], ran[2][0]
