A NetworkPolicy of the chart lets metrics of the platform be read from the namespace `monitoring.namespace` alone; `networkPolicies.enabled: false` leaves it out.
