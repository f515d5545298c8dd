`svc check` finds what is wrong between workloads and their identities, in a cluster or on one machine, and says what to do about each
finding; `svc check --pre` says whether a cluster is ready for an installation.
