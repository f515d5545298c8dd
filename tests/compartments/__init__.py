"""Tests of svc.compartments."""
