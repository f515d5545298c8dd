"""``svc federation``: the commands about bootstrap packages and the peers of a trust domain."""
