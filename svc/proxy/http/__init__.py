"""
HTTP/1.1 through the proxy, in the order in which a request travels.

``client`` parses the requests of one client connection and lets them wait in order; ``caller`` knows who sent them;
``exchange`` takes one request from its head to its release; ``upstream`` sends it to the application; ``response``
frames the answer; ``recorder`` collects what a receipt needs; ``tunnel`` joins connections after an upgrade;
``notary_endpoint`` answers the reserved path; ``answers`` are the proxy's own; ``context`` is shared by the connections
of a listener, and ``reporter`` is what they report to operators.
"""
