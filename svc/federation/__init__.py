"""
Federation of trust domains: bootstrap packages, references, and whether a peer is still the one that was pinned.

``roots`` are the keys that sign packages, ``rootkeys`` their private keys, ``fingerprint`` and ``reference`` name them
for people, ``payload`` is what a package says, ``package`` the one verifier of packages, ``succession`` the rule by
which a package replaces the pinned one, ``continuity`` the state of a relationship, ``importing`` what an administrator
may import. There is no I/O, no clock and no Kubernetes here.
"""
