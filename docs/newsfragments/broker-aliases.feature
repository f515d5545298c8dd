svc-broker sends topic aliases to clients of MQTT 5.0 that say a Topic Alias Maximum, `limits.aliases` at most; 0 switches aliases off
in both directions.
