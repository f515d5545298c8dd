`policy.allow` admits listed identities, also of federated trust domains. A reload with another policy keeps the listeners open and
closes exactly the connections whose client it refuses.
