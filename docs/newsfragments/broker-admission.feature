svc-broker refuses CONNECT of clients that no rule of their listener names (`mqtt_no_rule`), and ends their stored sessions at
the start. A guard of your own needs `may_connect`.
