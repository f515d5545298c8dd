The manager of a cluster makes the roots of the post-quantum issuer, and their successors, in a Secret (`cluster.issuer`); `svc-authority` reads its `keysFile` again when it has changed.
