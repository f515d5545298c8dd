Policies of a cluster are objects: `SvcClusterPolicy` and `SvcPolicy`, with the keys of policy files, the ports of injected proxies and their notarization.
