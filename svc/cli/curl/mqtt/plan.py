"""
The plan of one ``svc curl`` with the URL of a broker, checked before anything is sent.

``--validate`` and ``--notarization-level`` have no effect here; a flag that concerns HTTP alone is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from svc import naming
from svc.cli.errors import UsageRefused
from svc.cli.globals import GlobalOptions, env_bool
from svc.cli.verification_flags import chosen_profile, parse_identities
from svc.client.target import BrokerTarget
from svc.client.verification import Demands
from svc.errors import printable
from svc.notary.artifact_topics import ArtifactPrefix
from svc.wire.mqtt.primitives import MAX_TEXT, is_valid_text

_HTTP_ONLY: Final = {
    "data": "-d",
    "header": "-H",
    "request": "-X",
    "show_headers": "-i",
    "silent": "-s",
    "inject_faults": "--inject-faults",
    "max_body": "--max-body",
    "require_pinned_id": "--require-pinned-id",
    "save_evidence": "--save-evidence",
}
_VERIFY_ONLY: Final = {
    "expect_id": "--expect-id",
    "issuer": "--issuer",
    "pq_bundle": "--pq-bundle",
    "profile": "--profile",
}


@dataclass(frozen=True, slots=True)
class MqttPlan:
    """
    Everything that one ``svc curl`` does with a broker.

    Args:
        prefix: of the topics.
        workload: whether statements are printed.
        receipt: whether receipts are printed.
        verify: whether what is printed is verified.
        pq_bundle: as in :class:`svc.cli.curl.plan.CurlPlan`, like ``detailed_exit_codes``.
    """

    broker: BrokerTarget
    prefix: str
    workload: bool
    receipt: bool
    json: bool
    verify: bool
    demands: Demands
    options: GlobalOptions
    pq_bundle: str | None = None
    detailed_exit_codes: bool = False

    @property
    def filters(self) -> tuple[str, str]:
        """The topics of statements and of receipts."""
        return f"{self.prefix}/workload/#", f"{self.prefix}/receipt/#"

    @classmethod
    def read(cls, url: str, values: Mapping[str, Any], options: GlobalOptions, environ: Mapping[str, str]) -> MqttPlan:
        """Check and parse the flags of the command, given by name."""
        broker = _with_environment(BrokerTarget.parse(url), environ)
        _refuse_flags(values)
        return cls(
            broker=broker,
            prefix=_prefix(environ.get(naming.ENV_ARTIFACT_PREFIX) or naming.ARTIFACT_PREFIX),
            workload=values["print_workload"],
            receipt=values["print_receipt"],
            json=values["output"] == "json",
            verify=values["verify"],
            demands=Demands(
                validate=False,  # there is no TLS connection to the workload that a statement could be bound to
                profile=chosen_profile(values["profile"], environ),
                expected=parse_identities(values["expect_id"], naming.ENV_EXPECT_ID, environ, "--expect-id"),
                issuers=parse_identities(values["issuer"], naming.ENV_ISSUERS, environ, "--issuer"),
            ),
            options=options,
            pq_bundle=values["pq_bundle"] or environ.get(naming.ENV_PQ_BUNDLE) or None,
            detailed_exit_codes=(
                env_bool(environ, naming.ENV_DETAILED_EXIT_CODES)
                if values["detailed_exit_codes"] is None
                else values["detailed_exit_codes"]
            ),
        )


def _with_environment(broker: BrokerTarget, environ: Mapping[str, str]) -> BrokerTarget:
    """Complete user name and password from the environment; no error shows them."""
    username, password = broker.username, broker.password
    if username is None:
        username = environ.get(naming.ENV_MQTT_USERNAME) or None
    if password is None and naming.ENV_MQTT_PASSWORD in environ:
        password = os.fsencode(environ[naming.ENV_MQTT_PASSWORD]) or None
    if password is not None and username is None:
        raise UsageRefused(
            "a password needs a user name", f"write mqtt://USER@HOST:PORT, or set {naming.ENV_MQTT_USERNAME}"
        )
    if username is not None and not _is_sendable(username):
        raise UsageRefused(
            f"the user name has more than {MAX_TEXT} octets, or characters that MQTT does not allow",
            "it is UTF-8 without control characters",
        )
    if password is not None and len(password) > MAX_TEXT:
        raise UsageRefused(f"the password has more than {MAX_TEXT} octets", "MQTT takes no longer one")
    return replace(broker, username=username, password=password)


def _is_sendable(text: str) -> bool:
    try:
        return is_valid_text(text) and len(text.encode("utf-8")) <= MAX_TEXT
    except UnicodeEncodeError:  # octets of the environment that are not UTF-8
        return False


def _refuse_flags(values: Mapping[str, Any]) -> None:
    if not (values["print_workload"] or values["print_receipt"]):
        raise UsageRefused(
            "with the URL of a broker nothing is printed without --print-workload or --print-receipt",
            "give one of them, or both",
        )
    given = {**values, "request": values["request"] != "GET"}
    for name, flag in _HTTP_ONLY.items():
        if given[name]:
            raise UsageRefused(f"{flag} concerns HTTP, and the URL is that of a broker", "leave it out")
    if values["max_time"]:
        raise UsageRefused(
            "--max-time concerns HTTP: a subscription lasts until it is interrupted",
            "leave it out; timeout -s INT 10 svc curl ... interrupts it after 10 s",
        )
    for name, flag in _VERIFY_ONLY.items():
        if values[name] and not values["verify"]:
            raise UsageRefused(f"{flag} says how artifacts are verified", "add --verify, or leave it out")


def _prefix(text: str) -> str:
    try:
        return str(ArtifactPrefix.parse(text))
    except ValueError as error:
        raise UsageRefused(
            f'{naming.ENV_ARTIFACT_PREFIX} is set to "{printable(text)}"', f"expected: {error}"
        ) from error
