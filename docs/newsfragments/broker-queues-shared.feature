`limits.queuedTotal` (1 GiB) of `svc-broker` bounds what waits for all clients together, which identities share near it (`queues_full`).
