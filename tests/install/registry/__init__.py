"""Tests of svc.install.registry."""
