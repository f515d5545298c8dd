"""What the commands need of the own trust domain, wherever it is kept: what is asked of it, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from svc.federation.endpoint import Endpoint
from svc.federation.errors import PackageRefused
from svc.federation.package import BootstrapPackage, VerifiedPackage

_SCHEME: Final = "https://"


@dataclass(frozen=True)
class ImportRequest:
    """
    What is to be imported, verified by its own roots and compared with the expected fingerprint.

    Attributes:
        package: with the hint of ``--m2m-endpoint`` where that is given.
        expected: the text of ``--expect-fingerprint``; empty where nothing is expected.
        rebootstrap: whether a relationship that does not work may be replaced.
        force: whether any relationship may be replaced.
    """

    package: VerifiedPackage
    expected: str = ""
    rebootstrap: bool = False
    force: bool = False


@dataclass(frozen=True)
class Exported:
    """A package of the own trust domain, and what is printed about it beside what it says itself."""

    package: BootstrapPackage
    remarks: Mapping[str, object]


class Side(Protocol):
    """The own trust domain: that of an authority, or that of a cluster. Its methods raise ``SvcError``."""

    def export(self) -> Exported:
        """Return its bootstrap package."""

    def import_package(self, request: ImportRequest) -> Mapping[str, object]:
        """Trust the trust domain of a package; returns what was done, for printing."""

    def info(self) -> Mapping[str, object]:
        """Return its state for printing; the member ``reference`` is its federation reference."""


def parse_endpoint(text: str) -> Endpoint:
    """
    Read the endpoint that a flag gives; ``https://`` before it is removed.

    Raises:
        PackageRefused: ``bad_endpoint``.
    """
    try:
        return Endpoint.parse(text.removeprefix(_SCHEME))
    except ValueError as error:
        raise PackageRefused("bad_endpoint", text=text, defect=str(error)) from error
