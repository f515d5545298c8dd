The proxy can publish its workload statement and the receipts of messages on the upstream broker of an MQTT listener
(`artifacts`), retained and not retained, for `svc curl mqtt://`. Refusals of the broker are counted, logged and shown by `readyz`.
