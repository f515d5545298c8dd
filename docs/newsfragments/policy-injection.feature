Pods that are injected from now on have `controlPlane`, by the Service `svc-control-plane` of the chart: a change of policies is in force within a second.
