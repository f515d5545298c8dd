"""Tests of what peers get from a cluster."""
