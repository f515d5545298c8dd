"""
The post-quantum issuer as a service: its roots and their rotation, and its paths.

What the authority and the manager share; ``svc.notary.pqissuer`` decides on requests.
"""
