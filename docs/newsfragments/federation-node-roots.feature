`svc-agent` with `pqBundle.controlPlane`, as the chart installs it, has the post-quantum roots of federated trust domains in the file of
its node within seconds, so that proxies verify their statements and receipts.
