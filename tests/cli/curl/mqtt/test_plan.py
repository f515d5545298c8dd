"""Tests of ``svc.cli.curl.mqtt.plan``; what it refuses is in ``tests/cli/transcripts/curl.txt``."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.mqtt.plan import MqttPlan
from svc.cli.errors import UsageRefused
from svc.cli.globals import GlobalOptions
from svc.envelope.profile import Profile
from svc.wire.mqtt.primitives import MAX_TEXT
from tests.cli.curl.mqtt.broker import ABSENT

USER, PASSWORD, PREFIX = "SVC_MQTT_USERNAME", "SVC_MQTT_PASSWORD", "SVC_ARTIFACT_PREFIX"


def read(url: str = "mqtt://b:1", environ: dict[str, str] | None = None, **values: Any) -> MqttPlan:
    """Read a plan that prints statements."""
    return MqttPlan.read(url, {**ABSENT, "print_workload": True, **values}, GlobalOptions(), environ or {})


class PlanTests(SynchronousTestCase):
    """Credentials, topics and demands."""

    def test_credentials(self) -> None:
        """Those of the URL win over those of the environment, each by itself; empty variables are absent."""
        for url, environ, expected in (
            ("mqtt://b:1", {}, (None, None)),
            ("mqtt://b:1", {USER: "u", PASSWORD: "p"}, ("u", b"p")),
            ("mqtt://b:1", {USER: "", PASSWORD: ""}, (None, None)),
            ("mqtt://v@b:1", {USER: "u", PASSWORD: "p"}, ("v", b"p")),
            ("mqtt://v:q@b:1", {USER: "u", PASSWORD: "p"}, ("v", b"q")),
            ("mqtt://:q@b:1", {}, ("", b"q")),
        ):
            plan = read(url, environ)
            self.assertEqual(expected, (plan.broker.username, plan.broker.password))
            self.assertNotIn("b'q'", repr(plan))

    def test_sizes_of_credentials(self) -> None:
        """What fits a field of MQTT is accepted, one octet more and what is no text is refused, without being shown."""
        fits = read(environ={USER: "u" * MAX_TEXT, PASSWORD: "p" * MAX_TEXT})
        self.assertEqual(MAX_TEXT, len(fits.broker.password or b""))
        for environ in (
            {USER: "secret" + "u" * MAX_TEXT},
            {USER: "u", PASSWORD: "secret" + "p" * MAX_TEXT},
            {USER: "secret\x00"},
            {USER: "secret\udcff"},
            {PASSWORD: "secret"},
        ):
            error = self.assertRaises(UsageRefused, read, environ=environ)
            self.assertNotIn("secret", f"{error} {error.hint}")

    def test_topics(self) -> None:
        """The topics are below one prefix, which is no filter."""
        self.assertEqual(("$.svc/workload/#", "$.svc/receipt/#"), read().filters)
        self.assertEqual(("a/b/workload/#", "a/b/receipt/#"), read(environ={PREFIX: "a/b/"}).filters)
        for prefix in ("#", "a/+", "$share/g/a", "a\x00", "a" * MAX_TEXT):
            self.assertRaises(UsageRefused, read, environ={PREFIX: prefix})

    def test_without_effect(self) -> None:
        """Level and validation have no effect, and receipts need no level."""
        plan = read(notarization_level="logRequest", validate=False, print_receipt=True)
        self.assertEqual((True, True, False), (plan.workload, plan.receipt, plan.demands.validate))

    def test_verification(self) -> None:
        """What is demanded of artifacts comes from the flags, or from the environment."""
        plan = read(verify=True, profile="pq", pq_bundle="f", expect_id=("spiffe://a/b",))
        found = (plan.demands.profile, plan.pq_bundle, [str(each) for each in plan.demands.expected])
        self.assertEqual((Profile.PQ, "f", ["spiffe://a/b"]), found)
        plan = read(environ={"SVC_PROFILE": "cnsa2", "SVC_ISSUERS": "spiffe://a/m", "SVC_DETAILED_EXIT_CODES": "1"})
        self.assertEqual((Profile.CNSA2, 1), (plan.demands.profile, len(plan.demands.issuers)))
        self.assertTrue(plan.detailed_exit_codes)
