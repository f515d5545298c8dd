`protocol: mqtt` takes MQTT 3.1.1 and 5.0 through a listener to a broker: mutual TLS, a decision of the policies for each client, topic
and filter, patterns for client identifiers, and everything else passed on with the guarantees of client and broker.
