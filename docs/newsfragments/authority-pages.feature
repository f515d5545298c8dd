`svc-authority` has operators' pages too: `/livez` and `/readyz` with its conditions on `adminAddr`, by default `127.0.0.1:9904`. A
second authority on one machine needs another `adminAddr`, or `"0"` for none.
