With `controlPlaneAddr` every replica of the manager serves the policies of a namespace to its workloads, by mutual TLS, with an entity tag and an answer as soon as they change.
