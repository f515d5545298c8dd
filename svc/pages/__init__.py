"""
HTTP that a process serves beside its own protocol: pages for operators and scrapers, and requests of callers that are
attested when their connection is accepted.
"""
