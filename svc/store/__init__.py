"""
The notary's database: what was issued, kept durably and found again.

``interface`` says what a store is, ``records`` what goes in and comes out, ``errors`` what can go wrong. ``sqlite`` is
the embedded store, ``postgresql`` the one on a server for replicas that share one notary; both stand on ``threaded``.
``retention`` is the service that forgets what is old.
"""
