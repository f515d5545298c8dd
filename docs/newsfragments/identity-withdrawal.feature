An identity that the Workload API withdraws ends: the proxy closes the connections made under it, refuses new ones, is not ready
(`identity_withdrawn`), and comes back by itself with a new entry. Outages end nothing. `withdrawalGrace` says how long the
answer must stand. Connections to peers are judged again when bundles change, as those of clients are.
