"""
Octet streams through the proxy, whatever their protocol.

``connection`` authorizes a client, connects to the upstream and limits how long both stay; ``relay`` joins the two
transports; ``context`` is shared by the connections of a listener.
"""
