`persistence.path` lets svc-broker keep sessions, messages and retained messages in an SQLite database: nothing that a client
was told is lost over kill -9 or a full disk, and QoS 2 is exactly once over both.
