"""
Records in the notary database, whatever the protocol of what they describe.

``places`` admits a record, by the ``budget`` of its client, the queue and the ``room`` in the database; ``notarizer``
signs and commits it. ``receipt_collector`` stores the verified receipts of peers, ``receipt_pages`` shows operators
what is stored, and ``release_points`` names what an exchange passes on the way to its release.
"""
