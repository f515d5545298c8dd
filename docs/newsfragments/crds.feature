The custom resource `SvcLicenseStatus` of Kubernetes, in the folder that `svc files crds` prints; `bin/cluster up` applies it.
