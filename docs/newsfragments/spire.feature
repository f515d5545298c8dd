The proxy, `svc curl` and `bin/quickstart --spire-socket` run beside a real SPIRE, with `svc-authority` as post-quantum issuer only;
see `docs/spire.md`. `bin/tools spire` builds SPIRE for the tests. `/readyz` is 503 once the SVID in use has run out.
