"""
Octet streams through the proxy, whatever their protocol.

``connection`` authorizes a client, connects to the upstream and limits how long both stay; ``relay`` joins the two
transports. What it shares with MQTT is in :mod:`svc.proxy.relayed` and :mod:`svc.proxy.relayed_context`.
"""
