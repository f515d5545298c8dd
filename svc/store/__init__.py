"""
The notary's database: what was issued, kept durably and found again.

``interface`` says what a store is, ``records`` what goes in and comes out, ``errors`` what can go wrong. ``sqlite`` is
the embedded store, ``retention`` the service that forgets what is old.
"""
