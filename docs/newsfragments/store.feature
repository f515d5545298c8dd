The notary keeps statements and receipts in an embedded SQLite store: records are committed in groups and synchronised
before they are acknowledged, certificates are stored once, a full disk costs no acknowledged record.
