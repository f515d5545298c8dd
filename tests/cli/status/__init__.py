"""Tests of svc.cli.status."""
