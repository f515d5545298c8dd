Inbound MQTT listeners record the messages of their clients (`notarization`, `maxNotarization`, and levels that policies demand for topics): the record is
durable before PUBACK or PUBREC, which names the receipt; signed receipts are published on the broker with `artifacts`.
