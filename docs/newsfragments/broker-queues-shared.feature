`limits.queuedTotal` (1 GiB) of `svc-broker` bounds what waits for all clients together, which identities share near it (`queues_full`).
A connected client gets one message at a time however much waits for others of its identity, retained messages wait for
room, and expired ones are removed while their client is away.
