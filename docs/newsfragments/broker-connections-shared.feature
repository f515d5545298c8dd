Identities share the last tenth of the connections of a listener of `svc-broker`: one with most of them is refused (`mqtt_connection_share`), others get in.
