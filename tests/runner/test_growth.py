"""The gate against growth of classes and files."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.runner.growth import FREE_CLASS, FREE_FILE, Size, fallen, grown, read_list, sizes_of

SOURCE = """
class Session:
    closed = False

    def __init__(self):
        self.open: bool = True
        self.paused = self.held = False
        self.name = "x"

    def close(self):
        self.open = False
        other.flag = True
"""


class GrowthTests(SynchronousTestCase):
    def test_lines_and_flags_of_a_class(self) -> None:
        """Attributes of ``self`` with a literal truth value count once each."""
        self.assertEqual(sizes_of("a.py", SOURCE), {"a.py": Size(12), "a.py:Session": Size(11, 3)})

    def test_class_above_its_line_fails(self) -> None:
        """Neither lines nor flags of what is listed may grow."""
        listed = read_list("a.py:A 400 5\n")
        self.assertEqual(grown({"a.py:A": Size(400, 5)}, listed), [])
        self.assertIn("401 lines, at most 400", grown({"a.py:A": Size(401, 5)}, listed)[0])
        self.assertIn("6 flags, at most 5", grown({"a.py:A": Size(400, 6)}, listed)[0])
        self.assertEqual([], grown({"a.py:A": FREE_CLASS}, read_list("a.py:A 100 3\n")))

    def test_unlisted_class_and_file_have_limits(self) -> None:
        """What the list does not name stays within the limits for all."""
        self.assertEqual(grown({"a.py:A": FREE_CLASS, "a.py": FREE_FILE}, {}), [])
        above = {"a.py:A": FREE_CLASS._replace(flags=4), "a.py": FREE_FILE._replace(lines=FREE_FILE.lines + 1)}
        self.assertEqual(len(grown(above, {})), 2)

    def test_list_only_falls(self) -> None:
        """Written again, a line has the smaller figures, and none where the class is gone or small enough."""
        listed = read_list("a.py:A 400 5\na.py:B 400 0\na.py:Gone 400 0\n")
        sizes = {"a.py:A": Size(350, 9), "a.py:B": Size(200, 0)}
        self.assertEqual(fallen(sizes, listed), "a.py:A 350 5\n")
