Access rules of svc-broker deny topics (`denyPublish`, `denySubscribe`), and their filters have `%c` and `%u` for the identifier and the name of the client.
