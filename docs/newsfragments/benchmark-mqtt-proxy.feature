bin/bench measures messages through an MQTT listener of the proxy against haproxy as a relay, with the same Mosquitto behind both.
