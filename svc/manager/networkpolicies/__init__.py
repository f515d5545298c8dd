"""The NetworkPolicies of enabled namespaces."""
