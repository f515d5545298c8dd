"""Tests of ``svc.install``."""
