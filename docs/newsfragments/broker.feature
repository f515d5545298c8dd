svc-broker has its page ([broker](../broker.md)): keys with a JSON Schema, rules of access, limits, metrics, a unit. `svc.broker` exports what a program
needs that runs a broker inside, and a program that does.
