"""
TLS and sockets under SPIFFE identities: connection creators, fast transports, endpoints and their limits.

Import from the modules: ``endpoints`` (listen and connect), ``creators`` (TLS contexts from a source of SVIDs),
``evidence`` (who is at the other end), ``observer`` (what happened to connections), ``limits`` and ``errors``.
"""
