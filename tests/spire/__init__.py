"""Tests of svc.spire."""
