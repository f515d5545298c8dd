"""Tests of the issuer's roots."""
