"""
MQTT through the proxy: each client has one session at the broker, with its own connection to it.

``passing`` decides what passes, packet by packet and without I/O; ``stored`` acknowledges messages itself and hands
them to the broker later (``ack: middleware``); ``artifacts`` publishes statements and receipts on the broker.
``connection`` and ``upstream`` are the two connections; ``admission`` decides on clients and topics; ``context`` is
shared by the connections of a listener; ``recorder`` is the record of what they publish.
"""
