New series: `process_*` (memory, CPU seconds, file descriptors) of proxy and broker, and `svc_proxy_notary_signatures_waiting`.
