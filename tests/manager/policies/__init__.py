"""Tests of the policies of a cluster."""
