"""SPIRE instances: what they are, and whether they are ready."""
