License files ([licenses](docs/license.md)): signed with Ed25519 and ML-DSA-87, read whatever e-mail did to the text, evaluated at every use; an ended license never stops traffic.
