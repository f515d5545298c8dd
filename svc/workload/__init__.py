"""
The Workload API from both sides: the source that a program takes its SVIDs and bundles from, and the authority.

Nothing is imported here, so that a program which needs the source alone never loads the server.
"""
