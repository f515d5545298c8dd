"""Tests of NetworkPolicies."""
