"""
Registration entries of a SPIRE server: what workloads get which identity, made equal to what is wanted.

Reads and changes them through the server's gRPC API. Which entries are wanted is its user's decision.
"""
