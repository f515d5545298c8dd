"""Times as artifacts write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.claims import utc_micros

_ZONES = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))


class UtcMicrosTests(SynchronousTestCase):
    """A time with six digits of the second."""

    def test_whole_second(self) -> None:
        """The digits are written also where all of them are zero."""
        self.assertEqual("2026-11-21T00:25:32.000000Z", utc_micros(datetime(2026, 11, 21, 0, 25, 32, tzinfo=UTC)))

    @given(st.datetimes(datetime(1970, 1, 2), datetime(9998, 1, 1), timezones=_ZONES))
    def test_any_zone(self, moment: datetime) -> None:
        """The text names the same microsecond in UTC, wherever the time was taken."""
        text = utc_micros(moment)
        self.assertRegex(text, r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z\Z")
        self.assertEqual(moment, datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC))
