"""
HTTP/1.1 through the proxy, one module a part, in the order in which a request travels.

``client`` reads requests of one client connection and lets them wait in order; ``exchange`` takes one request from its
head to its release; ``upstream`` holds the connections to the application; ``heads`` writes the heads that are sent on;
``recorder`` remembers what a receipt needs; ``notary_endpoint`` answers the reserved path; ``answers`` are the proxy's
own.
"""
