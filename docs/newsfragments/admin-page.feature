`adminAddr` of proxy and broker has a web page (`/`) and its content as JSON (`/status`): readiness, identities and their ends,
listeners, traffic of the last hour, refusals, last errors, and the proxy's last receipts, each verified at `/receipts/ID`.
