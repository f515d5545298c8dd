"""
The vendor's tool, ``bin/license-sign``: makes signing keys and signs licenses. No part of what is installed.

``keyfile`` is the file of a private key, ``description`` the file that says what a license is to contain.
"""
