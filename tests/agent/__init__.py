"""Tests of svc.agent."""
