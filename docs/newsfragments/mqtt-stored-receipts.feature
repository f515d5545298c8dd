MQTT listeners with `ack: middleware` record messages like those with `ack: upstream` (`notarization`, `maxNotarization`, levels of policies): PUBACK or PUBREC is
sent when message and record are durable, also while the broker is away; receipts say who acknowledged (`ackedBy`).
Such a listener, too, needs a notary unless `maxNotarization` is `workload` or `none`.
