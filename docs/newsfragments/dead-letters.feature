Messages that were acknowledged with `ack: middleware` and that the next hop will not accept are dead letters in the buffer, bounded, counted,
logged and alerted on (`SvcProxyMqttDeadLetters`); they were dropped. `svc mqtt dead-letters` lists, sends and deletes them.
