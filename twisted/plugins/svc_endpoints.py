"""What Twisted's endpoint strings learn from this project: ``spiffe:``."""

from __future__ import annotations

from svc.embedding.strings import SpiffeStrings

svc_endpoints = SpiffeStrings()
