MQTT messages and acknowledgements of the usual form are read at a glance: the broker needs half the CPU time for a message.
