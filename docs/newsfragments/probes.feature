`probesAddr` of every daemon: `/livez` and `/readyz` alone, for a kubelet, so that `adminAddr` can stay on loopback in a pod.
