`svc receipts list`, `show` and `export` read the records of a notary: from the database of a proxy, while it runs or not and without
changing anything, or from a proxy over mutual TLS (`--from`). `export` writes evidence files for `svc verify`.
