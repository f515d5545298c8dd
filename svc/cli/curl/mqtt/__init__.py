"""
``svc curl`` with the URL of a broker: statements and receipts as they are published, until the connection ends.

``plan`` has what the flags mean together, ``connection`` the connection to the broker, ``verification`` what
``--verify`` checks, ``output`` a standard stream whose reader may be slow, ``printing`` reports and JSON, and ``run``
leads from the plan to the exit status.
"""
