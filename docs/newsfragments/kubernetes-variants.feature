The chart has `kubernetesVariant`: the folder of the kubelet on MicroK8s, and what OpenShift demands of users, accounts and volumes.
