"""Artifacts: statements and receipts are published on the broker, on a connection of the proxy's own."""
