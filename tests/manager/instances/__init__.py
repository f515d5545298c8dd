"""Tests for svc.manager.instances."""
