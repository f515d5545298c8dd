`bin/release package` makes the package of a release: images, chart and lists of contents, signed with Ed25519 and ML-DSA-87, as an OCI layout
in one tar archive that is the same each time.
