"""The platform on a real cluster of one node."""
