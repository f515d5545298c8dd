"""
The notary's database on a PostgreSQL server, for replicas that share one notary.

``address`` parses its URL and needs nothing installed; ``session`` connects, ``schema`` creates the tables, ``writer``
and ``reader`` work on them, ``store`` is the store. All but ``address`` need the package ``psycopg``.
"""
