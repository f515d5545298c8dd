Bootstrap packages and federation references: `svc federation inspect bootstrap-package` shows a package of another trust domain, verifies its
signatures and prints its fingerprint in three spellings ([federation](docs/federation.md)).
