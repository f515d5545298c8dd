"""
The post-quantum issuer as a service: its roots and their rotation, its two paths, and HTTP for attested callers.

What the authority and the manager share; ``svc.notary.pqissuer`` decides on requests.
"""
