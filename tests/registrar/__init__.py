"""Tests of svc.registrar."""
