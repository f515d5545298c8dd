Receipts for messages of MQTT: payload, verification, reports, lists and the search by topic (`svc receipts list --topic`); `svc curl mqtt://`
and `svc verify` verify them like those of HTTP.
