"""The proxy of MQTT: clients with verified identities before a broker, and a record of what they publish."""
