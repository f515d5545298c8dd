"""
The notary's database on a PostgreSQL server, for replicas that share one notary.

``address`` says where it is and needs nothing installed; ``session`` connects, ``schema`` makes the tables, ``writer``
and ``reader`` speak SQL, ``store`` is the store. All but ``address`` need the package ``psycopg``.
"""
