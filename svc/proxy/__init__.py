"""
The data plane: Twisted protocols that terminate SPIFFE mTLS, authorize, notarize and relay.

``config`` is what an operator writes, ``assembly`` builds the running tree from it, ``service`` starts and ends it.
``http``, ``tcp`` and ``mqtt`` are the protocols of listeners, which do not import each other: all share ``context``,
``listener`` and ``reporter``, TCP and MQTT ``relayed`` and ``relayed_context``. ``records`` makes records durable,
``credential_rotation`` replaces the credentials.
"""
