"""Tests of identities of service accounts."""
