Replicas can share one notary: `notary.database` names a PostgreSQL database in place of a file. A receipt made by one
proxy is served by each, a nonce used at one is used at all, also while its exchange runs; a server that goes away costs no
acknowledged record, and records whose fate is unknown are looked up when it is back. A record that any database does not
confirm within 10 s no longer keeps its exchange waiting.
