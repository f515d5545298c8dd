`svc license install` and `svc license status` take `-K` (`--kubeconfig`) and `--context`, work on the cluster of the svc context in effect
otherwise, and name the cluster in answers and errors; the document of `status` has `cluster`.
