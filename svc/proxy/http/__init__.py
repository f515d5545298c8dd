"""
HTTP/1.1 through the proxy, in the order in which a request travels.

``client`` parses the requests of one client connection and queues them; ``caller`` has the identity of the sender;
``exchange`` takes one request from its head to its release; ``upstream`` sends it to the application; ``response``
frames the response; ``recorder`` collects the content of the receipt; ``tunnel`` joins connections after an upgrade;
``notary_endpoint`` serves the reserved path; ``answers`` are the proxy's own responses; ``context`` is shared by the
connections of a listener, and ``reporter`` is the interface for their reports to operators.
"""
