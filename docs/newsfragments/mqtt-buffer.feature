A durable buffer of MQTT messages and the state machine that forwards them: what is acknowledged survives kill -9, a full disk and a
broker that is away; QoS 2 is handed over exactly once; AES-256-GCM at rest with rotated keys.
