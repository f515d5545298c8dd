"""The choices of a verification that ``svc curl`` and ``svc verify`` share; a flag wins over its variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from svc import naming
from svc.cli.errors import UsageRefused
from svc.envelope.profile import Profile
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed


def chosen_profile(flag: str | None, environ: Mapping[str, str]) -> Profile:
    """The profile of ``--profile`` or ``SVC_PROFILE``, ``hybrid`` by default."""
    return Profile.parse(flag or environ.get(naming.ENV_PROFILE) or Profile.HYBRID.value)


def parse_identities(
    flags: Sequence[str], variable: str, environ: Mapping[str, str], name: str
) -> tuple[SpiffeID, ...]:
    """
    Read the SPIFFE IDs of a repeatable flag.

    Args:
        variable: the environment variable that is read where the flag was not given; blanks or commas separate.
        name: the flag, for errors.
    """
    source, texts = name, tuple(flags)
    if not texts:
        source, texts = variable, tuple(environ.get(variable, "").replace(",", " ").split())
    return tuple(_parse_identity(text, source) for text in texts)


def _parse_identity(text: str, source: str) -> SpiffeID:
    try:
        spiffe_id = SpiffeID.parse(text)
    except SpiffeIdMalformed as error:
        raise UsageRefused(f"{source}: {error}", error.hint) from error
    if not spiffe_id.path:
        raise UsageRefused(f"{source}: {text} is a trust domain, not a workload", "name a workload with its path")
    return spiffe_id
