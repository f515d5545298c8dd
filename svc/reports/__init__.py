"""
Statements and receipts for people: short reports, whole accounts of an exchange, pages, and a line of a list.

Owns the words and how they are laid out. Nothing is verified here, and there is no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.reports.artifact_reports import receipt_report, statement_report
    from svc.reports.report import Report
else:
    __getattr__ = exports(__name__, {"artifact_reports": "receipt_report statement_report", "report": "Report"})

__all__ = ["Report", "receipt_report", "statement_report"]
