"""Tests of the records of the proxy."""
