What the admission webhook does to a pod, [injection](docs/injection.md): the proxy as native sidecar by the annotation `svc.internal/ports`, with precise refusals.
