"""What peers need to federate with this cluster: federation roots, the bootstrap package, and where both are served."""
