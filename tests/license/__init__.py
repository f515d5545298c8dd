"""Tests of licenses."""
