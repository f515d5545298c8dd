"""
Accounts of an exchange or a statement, for readers who know neither HTTP nor signatures: a verdict and sections.

:mod:`svc.reports.html` lays them out as a page, :mod:`svc.reports.exchange_account` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from svc.reports.report import ReportLine


class Verdict(Enum):
    """What a reader may conclude from an account; the value is its heading."""

    VERIFIED = "Verified"
    REFUSED = "Not verified: do not rely on this"
    UNCHECKED = "Shown as stored, not verified"


@dataclass(frozen=True, slots=True)
class Section:
    """
    One part of an account.

    ``text`` is preformatted, such as JSON; a ``folded`` section holds details that most readers do not need.
    """

    title: str
    lines: tuple[ReportLine, ...] = ()
    text: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """
    The whole account of one exchange or statement, for readers who know neither HTTP nor signatures.

    Attributes:
        title: what it is about.
        verdict: the conclusion.
        summary: the conclusion in sentences.
        sections: who, what, when, the checks, what is not proven, then the folded ones.
    """

    title: str
    verdict: Verdict
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
