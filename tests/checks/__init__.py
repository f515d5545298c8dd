"""Tests of the checks: pure."""
