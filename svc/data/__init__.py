"""
Files for other programs, installed with ``svc``: systemd units, schemas, alert rules, dashboards, custom resources of
Kubernetes, completion scripts and man pages.

Each is here only; the documentation links to it or quotes it, and ``svc files`` prints where it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
