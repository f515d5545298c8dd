"""
HTTP/1.1 through the proxy, in the order in which a request travels.

``client`` parses the requests of one client connection and queues them; ``caller`` has the identity of the sender;
``exchange`` takes one request from its head to its release; ``upstream_request`` sends it to the application, on a
connection of ``upstream``; ``response`` frames the response; ``recorder`` collects the content of the receipt;
``peer_verification`` is what an outbound listener demands of its peer; ``tunnel`` joins connections after an upgrade;
``notary_endpoint`` serves the reserved path; ``answers`` are the proxy's own responses; ``context`` is shared by the
connections of a listener.
"""
