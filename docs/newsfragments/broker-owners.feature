Sessions of clients without an identity belong to the listener that they came to: who reaches another listener cannot take them over.
`limits.sessionsOfIdentity` bounds the sessions of one SPIFFE ID. A database that is named by a symbolic link is locked as the file it is.
