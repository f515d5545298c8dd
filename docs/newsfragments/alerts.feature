The alert rules are complete: the process is down, connections that fail, a slow or failing notary database, a filling signing queue,
and a group for the broker. A Workload API out of reach is critical after one minute.
