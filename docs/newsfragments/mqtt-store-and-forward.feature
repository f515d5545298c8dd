MQTT listeners with `ack: middleware` acknowledge messages when they are durable in a buffer (`mqttBuffer`), and forward them when the broker is there.
