Outbound listeners verify their peer with `require: [workload]` (its statement, for each connection before a request uses it) and
`require: [receipt]` (the receipt of each request, before its response ends). `collectReceipts: true` keeps the verified receipts in the own
notary database, where `Svc-Receipt-Location` leads, also with outbound listeners alone. What is refused is 502 `upstream_unverified`
with the reason, or a response without its end.
