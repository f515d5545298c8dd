"""Artifacts on the broker."""
