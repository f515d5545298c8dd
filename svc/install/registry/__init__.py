"""
A client of registries of container images (OCI Distribution Specification 1.1).

``references``, ``challenges``, ``credentials``, ``proxies``, ``referrers`` and ``resuming`` decide without I/O;
``discovery`` reads the credentials of this machine; ``client`` is what an installer uses. Nothing is imported here.
"""
