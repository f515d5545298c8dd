"""
The data plane: Twisted protocols that terminate SPIFFE mTLS, authorize, notarize and relay.

``config`` is what an operator writes, ``assembly`` builds the running tree from it, ``service`` starts and ends it,
``credential_rotation`` replaces the credentials, ``notarizer`` makes records durable, ``http`` implements the protocol.
"""
