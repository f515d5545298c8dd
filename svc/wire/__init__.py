"""
Codecs without I/O: bytes in, events out.

``http1`` reads HTTP/1.1 messages through llhttp and adds what llhttp lets pass; ``fields`` knows which header fields
may travel. Nothing here knows a socket, a clock, an identity or a policy.
"""
