"""Tests of ``bin/release``."""
