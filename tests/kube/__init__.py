"""Tests of :mod:`svc.kube` that need no API server."""
