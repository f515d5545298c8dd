"""
MQTT through the proxy: each client has one session at the broker, with its own connection to it.

``session`` decides what passes, packet by packet and without I/O; ``packets`` finds packets in octets; ``connection``
and ``upstream`` are the two connections; ``authorization`` is the policy for topics; ``context`` is shared by the
connections of a listener; ``recorder`` is the record of what they publish.
"""
