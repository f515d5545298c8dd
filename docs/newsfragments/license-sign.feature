`bin/license-sign`, for the vendor: makes pairs of signing keys and signs licenses that a YAML file describes ([licenses](docs/license.md#signing-licenses)).
