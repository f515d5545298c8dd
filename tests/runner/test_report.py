"""What a run prints."""

from __future__ import annotations

from io import StringIO

from twisted.trial.unittest import SynchronousTestCase

from tests.runner.report import Module, Report


def module(**results: str) -> Module:
    """A module with tests of these results; each took a second more than the one before."""
    tests = [
        {"test": f"tests.a.{name}", "result": result, "seconds": float(number), "detail": f"because of {name}"}
        for number, (name, result) in enumerate(results.items())
    ]
    return Module("tests.a", 3.25, tests)


class ReportTests(SynchronousTestCase):
    """Lines, and whether the run is good."""

    def printed(self, *modules: Module, skips_fail: bool = False, slowest: int = 10) -> tuple[bool, list[str]]:
        """Report modules."""
        stream = StringIO()
        report = Report(stream, skips_fail=skips_fail, slowest=slowest)
        for each in modules:
            report.add(each)
        return report.close(), stream.getvalue().splitlines()

    def test_passed(self) -> None:
        """A module is one line with its time; the last line has the numbers."""
        good, lines = self.printed(module(one="passed", two="passed"))
        self.assertTrue(good)
        self.assertEqual(["tests.a", "3.2", "s", "2", "passed"], lines[0].split())
        self.assertEqual("2 passed, 0 failed", lines[-1])

    def test_failed(self) -> None:
        """A failure is shown at once with its detail, and named once more at the end."""
        good, lines = self.printed(module(one="failed", two="passed"))
        self.assertFalse(good)
        self.assertEqual(["  FAILED tests.a.one", "because of one"], lines[1:3])
        self.assertEqual(["FAILED tests.a.one", "1 passed, 1 failed"], lines[-2:])

    def test_skipped(self) -> None:
        """A skipped test is one line with its reason, and counts as failed where that is asked for."""
        good, lines = self.printed(module(one="skipped", two="passed"))
        self.assertTrue(good)
        self.assertIn("  SKIPPED tests.a.one: because of one", lines)
        self.assertEqual("1 passed, 0 failed", lines[-1])
        good, lines = self.printed(module(one="skipped", two="passed"), skips_fail=True)
        self.assertFalse(good)
        self.assertEqual("1 passed, 1 failed", lines[-1])

    def test_nothing(self) -> None:
        """A run without a test is not good."""
        self.assertEqual((False, "0 passed, 0 failed"), (self.printed()[0], self.printed()[1][-1]))

    def test_slowest(self) -> None:
        """The slowest tests are listed, the slowest first."""
        _good, lines = self.printed(module(one="passed", two="passed", three="passed"), slowest=2)
        begin = lines.index("slowest:")
        self.assertEqual(
            [["2.0", "s", "tests.a.three"], ["1.0", "s", "tests.a.two"]],
            [each.split() for each in lines[begin + 1 : -1]],
        )

    def test_output(self) -> None:
        """What the process wrote beside its events is shown."""
        odd = module(one="passed")
        odd.output = "a library complains\n"
        self.assertIn("a library complains", self.printed(odd)[1])
