Policy rules on MQTT: `mqttActions`, `mqttTopics`, `notMqttTopics` and `mqttClientIDs`; `svc policy check --mqtt-action publish --topic a/b`
explains a decision.
