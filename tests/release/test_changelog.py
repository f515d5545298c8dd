"""Sections of the changelog, and versions."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from release.changelog import newest_section
from release.versions import newer_than_tags

_TEXT = """\
# Changes

<!-- releases -->
## 0.3.0 (2027-01-02)

### New

- one

## 0.2.0 (2026-11-27)

- two
"""


class SectionTests(SynchronousTestCase):
    """The newest section."""

    def test_newest(self) -> None:
        """The first one, up to the next."""
        self.assertEqual(("0.3.0", "0.3.0 (2027-01-02)\n\n### New\n\n- one\n"), newest_section(_TEXT))

    def test_only(self) -> None:
        """The only one goes to the end of the file."""
        self.assertEqual(("0.2.0", "0.2.0 (2026-11-27)\n\n- two\n"), newest_section(_TEXT[_TEXT.index("## 0.2.0") :]))

    def test_none(self) -> None:
        """A file without a release has none; a heading without a date is none either."""
        self.assertEqual(("", ""), newest_section("# Changes\n\n## 0.3.0\n"))


class VersionTests(SynchronousTestCase):
    """Versions that may be released."""

    def test_newer(self) -> None:
        """Numbers are compared, not texts; tags of another form do not count."""
        self.assertEqual("", newer_than_tags("0.10.0", ["v0.9.1", "v0.2.0", "vendor", "v1.0"]))
        self.assertEqual("", newer_than_tags("0.2.0", []))

    def test_not_newer(self) -> None:
        """A version that is tagged, or older than one, is refused with the newest."""
        for version in ("0.9.1", "0.2.0"):
            said = newer_than_tags(version, ["v0.9.1", "v0.1.0"])
            self.assertEqual(f"the version {version} is not newer than 0.9.1, which is tagged", said)

    def test_form(self) -> None:
        """A version has three numbers."""
        for version in ("0.2", "0.2.0rc1", "v0.2.0", "00.2.0", "0.2.0\n"):
            self.assertEqual(f"the version {version} is not of the form 1.2.3", newer_than_tags(version, []))
