"""
Parts of Twisted and pyOpenSSL replaced for speed, by use of their private names.

``eager`` writes to sockets at once, ``reactor`` handles events and joins small writes of one iteration, ``tls`` is
the TLS data path, and ``selection`` is the one switch: it uses Twisted's own code where a private name is missing, or
with ``SVC_TRANSPORT=stock`` in the environment. Decision 0042 gives the reasons. Imports nothing of ``svc.transport``
but ``binding`` and ``keyupdates``.
"""
