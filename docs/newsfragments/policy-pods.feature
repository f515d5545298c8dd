`spec.podSelector` of policies names the pods that they are about; a proxy leaves out the others, by the labels of its pod. See docs/policy.md.
