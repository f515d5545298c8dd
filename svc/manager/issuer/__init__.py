"""The roots of the post-quantum issuer, in a Secret."""
