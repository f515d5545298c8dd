"""Tests of the manager."""
