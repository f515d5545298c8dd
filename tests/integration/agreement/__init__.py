"""Scenes that clients of a broker go through, so that two brokers can be compared by what their clients see."""
