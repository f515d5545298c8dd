`svc.embedding`: `Workload.request` sends any request and verifies statement and, at `signRequest`, the receipt of its response, with
evidence that `svc verify` reads; `Workload.stream` for bodies that are read as they arrive; `Workload.http_agent` is an `IAgent`, so
treq works with verified peers and receipts.
