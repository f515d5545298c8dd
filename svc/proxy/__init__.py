"""
The data plane: Twisted protocols that terminate SPIFFE mTLS, authorize, notarize and relay.

``config`` is what an operator writes, ``service`` builds the running tree from it, ``credential_rotation`` keeps the
credentials, ``notarizer`` makes records durable, ``http`` speaks the protocol.
"""
