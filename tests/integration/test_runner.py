"""The processes that run test modules: what they report of good modules, bad ones, and those that end the process."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.folders import short_folder
from tests.peers.waiting import FIRST_PORT, PORTS, TOP
from tests.runner.pool import Pool
from tests.runner.report import Module

HEAD = """
import os, time
from contextlib import ExitStack
from twisted.internet import reactor, task
from twisted.trial.unittest import SynchronousTestCase, TestCase
from tests.peers.folders import short_folder
"""


class PoolTests(SynchronousTestCase):
    """Modules in a folder of their own."""

    def setUp(self) -> None:
        """No module is there yet."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder: Path = short_folder(stack)

    def run_modules(self, *, processes: int = 1, timeout: float = 60.0, **sources: str) -> dict[str, Module]:
        """Write modules and run them."""
        for name, source in sources.items():
            (self.folder / f"{name}.py").write_text(HEAD + dedent(source))
        found: dict[str, Module] = {}
        environment = {"PYTHONPATH": os.pathsep.join((str(self.folder), str(TOP)))}
        pool = Pool(
            processes, lambda module: found.update({module.name: module}), timeout=timeout, environment=environment
        )
        pool.run(list(sources))
        return found

    def results(self, module: Module) -> dict[str, str]:
        """The result of each test by its last name."""
        return {each["test"].rpartition(".")[2]: each["result"] for each in module.tests}

    def test_results(self) -> None:
        """Each test is reported once, whatever it needs of the reactor, and with its time."""
        found = self.run_modules(
            case_all="""
            class Tests(TestCase):
                async def test_async(self):
                    await task.deferLater(reactor, 0.01)
                def test_false(self):
                    self.assertEqual(1, 2)
                def test_raises(self):
                    raise RuntimeError("unexpected")
                def test_unclean(self):
                    reactor.callLater(60, print)
                def test_skip(self):
                    pass
                test_skip.skip = "nothing to test here"
                def test_todo(self):
                    self.fail()
                test_todo.todo = "later"
            """
        )["case_all"]
        self.assertEqual(
            {
                "test_async": "passed",
                "test_false": "failed",
                "test_raises": "failed",
                "test_unclean": "failed",
                "test_skip": "skipped",
                "test_todo": "passed",
            },
            self.results(found),
        )
        detail = {each["test"].rpartition(".")[2]: each["detail"] for each in found.tests}
        self.assertIn("1 != 2", detail["test_false"])
        self.assertIn("unexpected", detail["test_raises"])
        self.assertEqual("nothing to test here", detail["test_skip"])

    def test_logs(self) -> None:
        """A failure carries what was logged during that test, by what has ended already too, and nothing older."""
        found = self.run_modules(
            case_logs="""
            STACK = ExitStack()
            FOLDER = short_folder(STACK)
            class Tests(SynchronousTestCase):
                def test_a(self):
                    (FOLDER / "daemon.out").write_text("of the first test\\n")
                def test_b(self):
                    with ExitStack() as stack:
                        (short_folder(stack) / "other.log").write_text("of another process\\n")
                        with (FOLDER / "daemon.out").open("a") as log:
                            log.write("of the second test\\n")
                        self.fail()
            """
        )["case_logs"]
        [failed] = found.having("failed")
        self.assertIn("of the second test", failed["detail"])
        self.assertIn("of another process", failed["detail"])
        self.assertNotIn("of the first test", failed["detail"])

    def test_not_importable(self) -> None:
        """A module that cannot be imported is a failure."""
        found = self.run_modules(case_broken="import nothing_of_this_name")["case_broken"]
        [failed] = found.tests
        self.assertEqual("failed", failed["result"])
        self.assertIn("nothing_of_this_name", failed["detail"])

    def test_process_ends(self) -> None:
        """Where a test ends the process, its module has failed, and the next one runs in a new process."""
        found = self.run_modules(
            case_exit="class Tests(SynchronousTestCase):\n    def test_it(self):\n        os._exit(7)",
            case_next="class Tests(SynchronousTestCase):\n    def test_it(self):\n        pass",
        )
        self.assertIn("status 7", found["case_exit"].having("failed")[0]["detail"])
        self.assertEqual({"test_it": "passed"}, self.results(found["case_next"]))

    def test_hanging(self) -> None:
        """A module that takes too long is ended, and the stack of its threads is shown."""
        found = self.run_modules(
            case_hangs="class Tests(SynchronousTestCase):\n    def test_it(self):\n        time.sleep(600)", timeout=2.0
        )["case_hangs"]
        self.assertEqual(1, len(found.having("failed")))
        self.assertIn("case_hangs.py", found.output)

    def test_output(self) -> None:
        """The output of a module is kept separately."""
        source = "class Tests(SynchronousTestCase):\n    def test_it(self):\n        print('{}', flush=True)"
        found = self.run_modules(case_one=source.format("first"), case_two=source.format("second"))
        self.assertEqual(("first\n", "second\n"), (found["case_one"].output, found["case_two"].output))

    def test_several_processes(self) -> None:
        """Several processes share the modules, and each allocates ports of its own."""
        source = """
        import pathlib
        from tests.peers.waiting import eventually, free_port
        class Tests(SynchronousTestCase):
            def test_it(self):
                print(free_port(), flush=True)
                # The ports of a process that has ended are allocated anew.
                pathlib.Path(__file__).with_suffix(".began").touch()
                eventually(lambda: len(list(pathlib.Path(__file__).parent.glob("*.began"))) == 2)
        """
        found = self.run_modules(processes=2, case_one=source, case_two=source)
        ports = [int(each.output) for each in found.values()]
        self.assertNotEqual(*((port - FIRST_PORT) // PORTS for port in ports))
