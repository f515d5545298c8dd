"""How interrupted transfers go on."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.resuming import begin_of_download, continue_download, received, seconds_to_wait

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


class DownloadTests(SynchronousTestCase):
    """Answers to requests for content."""

    def test_answers(self) -> None:
        """Only what continues the part is appended; another size is never taken."""
        for code, content_range, length, begin, wanted in (
            (200, "", 100, 0, "whole"),
            (200, "", None, 40, "whole"),
            (200, "", 99, 0, "refuse"),
            (206, "bytes 40-99/100", 60, 40, "append"),
            (206, "bytes 40-99/*", 60, 40, "append"),
            (206, "Bytes 40-59/100", 20, 40, "append"),
            (206, "bytes 39-99/100", 61, 40, "anew"),
            (206, "bytes 40-100/100", 61, 40, "anew"),
            (206, "bytes 40-39/100", 0, 40, "anew"),
            (206, "bytes 40-99/101", 60, 40, "refuse"),
            (206, "", 60, 40, "anew"),
            (206, "bytes 0-99/100", 100, 0, "refuse"),
            (416, "bytes */100", 0, 40, "anew"),
            (416, "", 0, 0, "refuse"),
        ):
            self.assertEqual(wanted, continue_download(code, content_range, length, begin, 100), (code, content_range))

    def test_begin(self) -> None:
        """No range begins behind the end."""
        self.assertEqual([0, 99, 100, 0], [begin_of_download(each, 100) for each in (0, 99, 100, 101)])

    @given(st.sampled_from([200, 206, 416]), st.text(max_size=30), st.none() | st.integers(0, 200), st.integers(0, 99))
    def test_any_answer(self, code: int, content_range: str, length: int | None, begin: int) -> None:
        """Without a range nothing is asked for anew, so that it ends."""
        decided = continue_download(code, content_range, length, begin, 100)
        self.assertFalse(begin == 0 and decided in ("anew", "append"))


class UploadTests(SynchronousTestCase):
    """What a registry has of an upload."""

    def test_fields(self) -> None:
        """``0-0`` is none; what is no range, or more than there is, is nothing that is known."""
        for text, wanted in (
            ("0-0", 0),
            ("0-99", 100),
            ("bytes=0-49", 50),
            (" 0-49 ", 50),
            ("0-100", None),
            ("1-49", None),
            ("", None),
            ("0-x", None),
            ("0-" + "9" * 30, None),
        ):
            self.assertEqual(wanted, received(text, 100), text)


class WaitTests(SynchronousTestCase):
    """``Retry-After``."""

    def test_forms(self) -> None:
        """Seconds or a date; what is neither, or past, is no wait."""
        for text, wanted in (
            ("30", 30.0),
            (" 0 ", 0.0),
            ("Sat, 28 Nov 2026 12:00:10 GMT", 10.0),
            ("Sat, 28 Nov 2026 11:00:00 GMT", 0.0),
            ("", 0.0),
            ("-1", 0.0),
            ("soon", 0.0),
            ("9" * 40, 0.0),
        ):
            self.assertEqual(wanted, seconds_to_wait(text, NOW), text)

    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text gives a wait that is not negative."""
        self.assertGreaterEqual(seconds_to_wait(text, NOW), 0.0)
