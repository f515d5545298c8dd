"""
HTTP/1.1 requests whose responses are verified: shared by ``svc curl`` and by programs that embed.

Owns the connection, the order of an exchange and what is verified; not where trust and credentials come from, nor what
is done with a response.
"""
