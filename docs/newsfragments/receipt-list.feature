`GET /.well-known/svc-notary/v1/receipts` lists the receipts that the caller may read, by time, client, path, status and outcome.
One identity can have four lists at a time at a listener.
