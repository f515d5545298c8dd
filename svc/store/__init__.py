"""
The notary's database: what was issued, stored durably and found again.

``interface`` defines a store, ``records`` what is stored, ``errors`` what can go wrong. ``sqlite`` is the embedded
store, ``postgresql`` the one for replicas that share a notary on a server; ``threaded`` is what both do around their
database, ``backend`` what it needs of the database. ``retention`` is the service that prunes old records.
"""
