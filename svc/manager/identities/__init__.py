"""Identities of service accounts: registration entries of the SPIRE server."""
