"""Tests of the chart ``svc-core``."""
