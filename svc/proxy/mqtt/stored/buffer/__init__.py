"""
The buffer of listeners with ``ack: middleware``: what clients were promised, until the broker has it.

``store`` is what the proxy opens: it records changes through :mod:`svc.sqlite.groups`, ``writer`` executes them,
``reader`` reads messages in pages. ``records`` are the values, ``keys`` encrypts what is stored, ``schema`` holds the
tables, ``errors`` what can go wrong. When a message is stored, sent and removed is decided in
:mod:`svc.proxy.mqtt.stored.forwarding`. Nothing else in the proxy uses SQL.
"""
