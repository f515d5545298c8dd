Log records and readiness of a notary database, and of the broker's, name its path, why it refuses (disk full, read-only file
system, I/O error, permission denied) and the free octets of its file system; of a database on a server, host, name and what the
server said.
