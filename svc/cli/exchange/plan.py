"""
From the flags of ``svc curl`` to a plan that is whole and free of contradictions before anything is sent.

Owns what the flags mean together and what the environment adds: a flag wins over its variable. Knows no network.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from svc import naming
from svc.cli.errors import UsageRefused
from svc.cli.exchange.demands import Demands
from svc.cli.exchange.errors import IdentityNotPinned
from svc.cli.exchange.faults import FAULTS
from svc.cli.exchange.request import Request, plan_request
from svc.cli.exchange.target import Target
from svc.cli.globals import GlobalOptions, env_bool
from svc.identity.spiffeid import SpiffeID
from svc.notary.ids import NONCE_BYTES, new_nonce
from svc.notary.level import Level
from svc.notary.profile import Profile

DEFAULT_MAX_BODY: Final = 2**30


@dataclass(frozen=True, slots=True)
class Showing:
    """
    What is printed.

    Args:
        headers: ``--show-headers``.
        silent: ``--silent``.
        workload: ``--print-workload``.
        receipt: ``--print-receipt``.
        json: ``-o json``.
    """

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
        request: what is sent.
        demands: what must hold.
        showing: what is printed.
        options: the global options.
        pq_bundle: the file with the post-quantum roots, where the user or the environment names one.
        max_body: the most octets of a body that is kept back.
        max_time: seconds for the whole; None without a limit.
        save_evidence: where evidence is written.
        detailed_exit_codes: whether the exit status says what failed.
    """

    request: Request
    demands: Demands
    showing: Showing
    options: GlobalOptions
    pq_bundle: str | None = None
    max_body: int = DEFAULT_MAX_BODY
    max_time: float | None = None
    save_evidence: str | None = None
    detailed_exit_codes: bool = False

    @property
    def keeps_answer_back(self) -> bool:
        """Whether the body waits: for the verification, or to become part of one JSON object."""
        return self.demands.validate or self.showing.json

    @classmethod
    def read(
        cls,
        url: str,
        values: Mapping[str, Any],
        options: GlobalOptions,
        environ: Mapping[str, str],
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> CurlPlan:
        """
        Make a plan of the flags.

        Args:
            url: the one argument.
            values: the flags of the command by name.
            options: the global options.
            environ: the environment.
            random: gives that many secure random octets.

        Returns:
            The plan.

        Raises:
            UsageRefused: a value or a combination that makes no sense.
            IdentityNotPinned: ``--require-pinned-id`` without an identity.
        """
        target = Target.parse(url)
        demands = _demands(values, environ)
        showing = Showing(
            headers=values["show_headers"],
            silent=values["silent"],
            workload=values["print_workload"],
            receipt=values["print_receipt"],
            json=values["output"] == "json",
        )
        _refuse_contradictions(demands, showing, values)
        request = plan_request(
            target,
            method=values["request"],
            headers=values["header"],
            data=values["data"],
            level=demands.level,
            nonce=new_nonce(random(NONCE_BYTES)),
        )
        detailed = values["detailed_exit_codes"]
        return cls(
            request=request,
            demands=demands,
            showing=showing,
            options=options,
            pq_bundle=values["pq_bundle"] or environ.get(naming.ENV_PQ_BUNDLE) or None,
            max_body=DEFAULT_MAX_BODY if values["max_body"] is None else values["max_body"],
            max_time=values["max_time"],
            save_evidence=values["save_evidence"] or None,
            detailed_exit_codes=env_bool(environ, naming.ENV_DETAILED_EXIT_CODES) if detailed is None else detailed,
        )


def chosen_profile(flag: str | None, environ: Mapping[str, str]) -> Profile:
    """
    Choose the verification profile.

    Args:
        flag: the value of ``--profile``, None where it was not given.
        environ: the environment, whose ``SVC_PROFILE`` counts then.

    Returns:
        The profile; ``hybrid`` where nobody says anything.

    Raises:
        ProfileUnknown: there is no such profile.
    """
    return Profile.parse(flag or environ.get(naming.ENV_PROFILE) or Profile.HYBRID.value)


def identities(flags: Sequence[str], variable: str, environ: Mapping[str, str], name: str) -> tuple[SpiffeID, ...]:
    """
    Read the SPIFFE IDs of a repeatable flag.

    Args:
        flags: its values.
        variable: the environment variable that counts where the flag was not given; blanks or commas separate.
        environ: the environment.
        name: the flag, for errors.

    Returns:
        The identities.

    Raises:
        UsageRefused: one is no SPIFFE ID of a workload.
    """
    source, texts = name, tuple(flags)
    if not texts:
        source, texts = variable, tuple(environ.get(variable, "").replace(",", " ").split())
    return tuple(_identity(text, source) for text in texts)


def _identity(text: str, source: str) -> SpiffeID:
    from svc.identity.spiffeid import SpiffeIdMalformed

    try:
        spiffe_id = SpiffeID.parse(text)
    except SpiffeIdMalformed as error:
        raise UsageRefused(f"{source}: {error}", error.advice()) from error
    if not spiffe_id.path:
        raise UsageRefused(f"{source}: {text} is a trust domain, not a workload", "name a workload with its path")
    return spiffe_id


def _demands(values: Mapping[str, Any], environ: Mapping[str, str]) -> Demands:
    expected = identities(values["expect_id"], naming.ENV_EXPECT_ID, environ, "--expect-id")
    if values["require_pinned_id"] and not expected:
        raise IdentityNotPinned
    return Demands(
        level=Level.parse(values["notarization_level"]),
        validate=values["validate"],
        profile=chosen_profile(values["profile"], environ),
        expected=expected,
        issuers=identities(values["issuer"], naming.ENV_ISSUERS, environ, "--issuer"),
        faults=_faults(values["inject_faults"]),
    )


def _faults(values: Sequence[str]) -> frozenset[str]:
    words = [word for value in values for word in value.split(",") if word]
    for word in words:
        if word not in FAULTS:
            raise UsageRefused(f'--inject-faults does not accept "{word}"', f"expected: one of {', '.join(FAULTS)}")
    return frozenset(words)


def _refuse_contradictions(demands: Demands, showing: Showing, values: Mapping[str, Any]) -> None:
    if showing.receipt and demands.level is not Level.SIGN_REQUEST:
        raise UsageRefused(
            "--print-receipt needs a signed receipt", "add -n signRequest, which asks for one, or leave it out"
        )
    if showing.receipt and not demands.validate:
        raise UsageRefused(
            "--print-receipt contradicts --validate=false, which skips the receipt", "leave out one of them"
        )
    if values["save_evidence"] and not demands.validate:
        raise UsageRefused(
            "--save-evidence contradicts --validate=false: only what was verified is evidence", "leave out one of them"
        )
