"""
The plan of one ``svc curl``: what its flags and the environment mean together, checked before anything is sent.

A flag wins over its environment variable.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from svc import naming
from svc.cli.curl.request import curl_request, read_data
from svc.cli.errors import CliError, UsageRefused
from svc.cli.globals import GlobalOptions, Invocation, env_bool
from svc.cli.verification_flags import chosen_profile, parse_identities
from svc.client.request import Request
from svc.client.target import Target
from svc.client.verification import BAD_STATEMENT, NO_STATEMENT, Demands
from svc.envelope.ids import NONCE_BYTES, new_nonce
from svc.notary.level import Level

DEFAULT_MAX_BODY: Final = 2**30
_FAULTS: Final = (NO_STATEMENT, BAD_STATEMENT)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is printed: ``-i``, ``-s``, ``--print-workload``, ``--print-receipt`` and ``-o json``."""

    headers: bool = False
    silent: bool = False
    workload: bool = False
    receipt: bool = False
    json: bool = False


@dataclass(frozen=True, slots=True)
class CurlPlan:
    """
    Everything that one ``svc curl`` does.

    Args:
        pq_bundle: the file with post-quantum roots that a flag or the environment names.
        max_body: the largest body that is kept back, in octets.
        max_time: the limit of the whole exchange in seconds; None without a limit.
        save_evidence: the path of the evidence file.
        detailed_exit_codes: whether the exit status says what failed.
    """

    request: Request
    demands: Demands
    output: OutputOptions
    options: GlobalOptions
    pq_bundle: str | None = None
    max_body: int = DEFAULT_MAX_BODY
    max_time: float | None = None
    save_evidence: str | None = None
    detailed_exit_codes: bool = False

    @property
    def buffers_response(self) -> bool:
        """Whether the body is kept back: for the verification, or to become part of one JSON object."""
        return self.demands.validate or self.output.json

    @classmethod
    def read(
        cls,
        url: str,
        values: Mapping[str, Any],
        options: GlobalOptions,
        invocation: Invocation,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> CurlPlan:
        """
        Check and parse the flags of the command, given by name.

        Args:
            random: returns that many secure random octets.
        """
        environ = invocation.environ
        target = Target.parse(url)
        demands = _demands(values, environ)
        output = _output_options(values)
        _refuse_contradictions(demands, output, values)
        request = curl_request(
            target,
            method=values["request"],
            headers=values["header"],
            body=read_data(values["data"], invocation.stdin),
            level=demands.level,
            nonce=new_nonce(random(NONCE_BYTES)),
        )
        detailed = values["detailed_exit_codes"]
        return cls(
            request=request,
            demands=demands,
            output=output,
            options=options,
            pq_bundle=values["pq_bundle"] or environ.get(naming.ENV_PQ_BUNDLE) or None,
            max_body=DEFAULT_MAX_BODY if values["max_body"] is None else values["max_body"],
            max_time=values["max_time"] or None,
            save_evidence=values["save_evidence"] or None,
            detailed_exit_codes=env_bool(environ, naming.ENV_DETAILED_EXIT_CODES) if detailed is None else detailed,
        )


def _output_options(values: Mapping[str, Any]) -> OutputOptions:
    return OutputOptions(
        headers=values["show_headers"],
        silent=values["silent"],
        workload=values["print_workload"],
        receipt=values["print_receipt"],
        json=values["output"] == "json",
    )


def _demands(values: Mapping[str, Any], environ: Mapping[str, str]) -> Demands:
    expected = parse_identities(values["expect_id"], naming.ENV_EXPECT_ID, environ, "--expect-id")
    if values["require_pinned_id"] and not expected:
        raise CliError("identity_not_pinned")
    return Demands(
        level=Level.parse(values["notarization_level"]),
        validate=values["validate"],
        profile=chosen_profile(values["profile"], environ),
        expected=expected,
        issuers=parse_identities(values["issuer"], naming.ENV_ISSUERS, environ, "--issuer"),
        faults=_faults(values["inject_faults"]),
    )


def _faults(values: Sequence[str]) -> frozenset[str]:
    words = [word for value in values for word in value.split(",") if word]
    for word in words:
        if word not in _FAULTS:
            raise UsageRefused(f'--inject-faults does not accept "{word}"', f"expected: one of {', '.join(_FAULTS)}")
    return frozenset(words)


def _refuse_contradictions(demands: Demands, output: OutputOptions, values: Mapping[str, Any]) -> None:
    if values["verify"]:
        raise UsageRefused(
            "--verify concerns brokers: an answer over HTTP is verified unless --validate=false is given",
            "leave it out",
        )
    if output.receipt and demands.level is not Level.SIGN_REQUEST:
        raise UsageRefused(
            "--print-receipt needs a signed receipt", "add -n signRequest, which asks for one, or leave it out"
        )
    if output.receipt and not demands.validate:
        raise UsageRefused(
            "--print-receipt contradicts --validate=false, which skips the receipt", "leave out one of them"
        )
    if values["save_evidence"] and not demands.validate:
        raise UsageRefused(
            "--save-evidence contradicts --validate=false: only what was verified is evidence", "leave out one of them"
        )
