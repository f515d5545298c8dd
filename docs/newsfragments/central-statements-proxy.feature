Proxies with `controlPlaneToken` have their statement from the manager, and renew it with each SVID, when the pod changes, and before its end; while no
manager answers they issue their own.
