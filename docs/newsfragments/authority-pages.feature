`svc-authority` has operators' pages too, on `adminAddr`, by default `127.0.0.1:9904`: a web page, `/status`, `/livez` and `/readyz`. A
second authority on one machine needs another `adminAddr`, or `"0"` for none.
