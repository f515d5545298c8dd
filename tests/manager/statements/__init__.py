"""Tests of central statements."""
