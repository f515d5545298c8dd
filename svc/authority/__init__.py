"""
The process ``svc-authority``: an ephemeral trust domain for one machine, and an issuer of post-quantum leaves.

Nothing is imported here; ``twistd svc-authority`` enters through :mod:`svc.authority.tap`.
"""
