"""Tests of svc.csi."""
