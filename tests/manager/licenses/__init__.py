"""Tests of the status of licenses."""
