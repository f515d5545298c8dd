Receipts that were signed together, by one envelope over their Merkle root (RFC 9162), are verified like those that were signed
alone: by `svc curl`, `svc verify`, `svc receipts`, the pages of the proxy and programs that embed. `/.well-known/svc-notary` lists
the media types of receipts as `receiptForms`.
