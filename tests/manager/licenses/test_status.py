"""The status of licenses, for each state with a moved clock."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.identity import TrustDomain
from svc.kube.times import to_time
from svc.license.secret import license_secret
from svc.license.verification import VerifiedLicense
from svc.manager.licenses.status import (
    MAX_LISTED,
    FoundLicense,
    assess_all,
    counting,
    license_status,
    read_secret,
    sentence,
)
from tests.license.material import KEYS, LICENSE, NOW, envelope, text_of, verified

PROD = TrustDomain.parse("prod.example.org")
END = LICENSE.not_after


class LicenseStatusTests(SynchronousTestCase):
    """Licenses, usage and time in, the status out."""

    def status(
        self,
        *licenses: VerifiedLicense | EnvelopeError,
        now: Any = NOW,
        used: int = 0,
        former: Any = None,
        domain: Any = PROD,
    ) -> dict[str, Any]:
        """Evaluate licenses of Secrets that are called ``l0``, ``l1`` and so on."""
        found = [FoundLicense("svc-system", f"l{number}", each) for number, each in enumerate(licenses)]
        usage = {"workloads": used}
        assessed = assess_all(found, now, domain, usage, None)
        self.assertTrue(sentence(counting(assessed)))
        return license_status(assessed, now, usage, former or {})

    def conditions(self, status: dict[str, Any]) -> dict[str, tuple[str, str]]:
        """Status and reason of each condition."""
        return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}

    def test_states_by_time(self) -> None:
        """Each instant has its state, its conditions and the next change."""
        for now, state, valid, expiring in (
            (LICENSE.not_before - timedelta(seconds=1), "NotYetValid", "False", ("False", "NotExpiring")),
            (NOW, "Valid", "True", ("False", "NotExpiring")),
            (END - timedelta(days=60), "ExpiringSoon", "True", ("True", "EndIsNear")),
            (END, "Grace", "True", ("True", "Ended")),
            (END + timedelta(days=30), "Expired", "False", ("True", "Ended")),
        ):
            status = self.status(verified(), now=now)
            self.assertEqual(state, status["state"])
            self.assertEqual(
                {"Valid": (valid, state), "ExpiringSoon": expiring, "WithinLimits": ("True", "WithinLimits")},
                self.conditions(status),
            )
        self.assertNotIn("nextChange", status)
        self.assertEqual(
            {"time": to_time(END), "state": "Grace"},
            self.status(verified(), now=END - timedelta(days=1))["nextChange"],
        )

    def test_content_of_the_license_that_counts(self) -> None:
        """The status has what the license says, its Secret, and the warning that is due."""
        status = self.status(verified(), now=END - timedelta(days=20))
        self.assertEqual("ACME GmbH", status["licensee"])
        self.assertEqual({"namespace": "svc-system", "name": "l0"}, status["secretRef"])
        self.assertEqual(30, status["warning"])
        self.assertEqual({"clusters": 3, "workloads": 500, "federatedPeers": 4}, status["limits"])
        self.assertEqual(dict(KEYS[0].kids), status["kids"])
        self.assertEqual("2028-01-30T23:59:59Z", status["graceUntil"])

    def test_usage_at_the_limit_and_above(self) -> None:
        """As much as the license allows is fine; one more is named, and the license still counts."""
        self.assertEqual("Valid", self.status(verified(), used=500)["state"])
        status = self.status(verified(), used=501)
        self.assertEqual("OverLimit", status["state"])
        self.assertEqual(("True", "OverLimit"), self.conditions(status)["Valid"])
        self.assertEqual(("False", "OverLimit"), self.conditions(status)["WithinLimits"])
        message = next(each for each in status["conditions"] if each["type"] == "WithinLimits")["message"]
        self.assertEqual("workloads: 501 in use, 500 allowed", message)

    def test_best_license_counts(self) -> None:
        """Of an expired, a refused and a valid license the valid one counts; it is listed first."""
        expired = verified(not_after=NOW - timedelta(days=60))
        status = self.status(EnvelopeError("unsupported_version", found=2, supported=1), expired, verified())
        self.assertEqual("Valid", status["state"])
        self.assertEqual(
            [("l2", "Valid", True), ("l1", "Expired", False), ("l0", "Invalid", False)],
            [(each["name"], each["state"], each["counts"]) for each in status["licenses"]],
        )
        self.assertEqual("unsupported_version", status["licenses"][2]["reason"])

    def test_no_license(self) -> None:
        """Without a license the state is Missing, and nothing else is claimed."""
        status = self.status()
        self.assertEqual({"observedTime", "state", "conditions", "usage"}, set(status))
        self.assertEqual("Missing", status["state"])
        self.assertEqual(("Unknown", "NoLicense"), self.conditions(status)["WithinLimits"])

    def test_enforcement_outlives_the_license(self) -> None:
        """What a license says of the time without one is known when it is gone."""
        self.assertEqual("hard", self.status(former={"enforcement": "hard"})["enforcement"])
        self.assertNotIn("enforcement", self.status())
        self.assertEqual("soft", self.status(verified(), former={"enforcement": "hard"})["enforcement"])

    def test_other_trust_domain(self) -> None:
        """A license for other trust domains does not count."""
        self.assertEqual("WrongTrustDomain", self.status(verified(), domain=TrustDomain.parse("other.org"))["state"])

    def test_clock_that_was_set_back(self) -> None:
        """The time that was observed never goes back, and a clock that is a day behind it is suspect."""
        found = [FoundLicense("svc-system", "l0", verified())]
        late = NOW + timedelta(hours=25)
        assessed = assess_all(found, NOW, PROD, {}, late)
        status = license_status(assessed, NOW, {}, {"observedTime": to_time(late)})
        self.assertEqual("ClockSuspect", status["state"])
        self.assertEqual(to_time(late), status["observedTime"])

    def test_transition_times_are_kept(self) -> None:
        """A condition keeps the time at which its status changed."""
        former = self.status(verified(), now=NOW)
        later = self.status(verified(), now=END, former=former)
        times = {each["type"]: each["lastTransitionTime"] for each in later["conditions"]}
        self.assertEqual({"Valid": to_time(NOW), "ExpiringSoon": to_time(END), "WithinLimits": to_time(NOW)}, times)

    def test_number_of_listed_licenses_is_bounded(self) -> None:
        """The object stays small, and the license that counts is listed."""
        refused = [EnvelopeError("unsupported_version", found=2, supported=1)] * MAX_LISTED
        status = self.status(*refused, verified())
        self.assertEqual(MAX_LISTED, len(status["licenses"]))
        self.assertTrue(status["licenses"][0]["counts"])


class SecretTests(SynchronousTestCase):
    """What is read of a Secret."""

    def secret(self, data: dict[str, str] | None) -> FoundLicense:
        """Read a Secret with this data."""
        return read_secret({"metadata": {"namespace": "n", "name": "s"}, "data": data}, KEYS)

    def test_installed_license(self) -> None:
        """What ``svc license install`` makes is read back."""
        text = text_of(envelope()).encode()
        found = self.secret({"license.svc": base64.b64encode(text).decode()})
        assert isinstance(found.content, VerifiedLicense)
        self.assertEqual(LICENSE, found.content.license)
        self.assertEqual(found.content, read_secret(license_secret(found.content, "n"), KEYS).content)

    def test_secret_without_a_license(self) -> None:
        """A Secret without the key, or with something else in it, is a refused license."""
        for data, reason in ((None, "license_not_found"), ({"license.svc": "aGVsbG8="}, "license_not_found")):
            found = self.secret(data)
            assert isinstance(found.content, EnvelopeError)
            self.assertEqual(reason, found.content.reason)
